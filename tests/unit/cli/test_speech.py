"""A service that speaks: refused before anything is made; never on the CPU in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import World

FILE = """\
name: homelab
hosts: { box: { incus: local } }
containers:
  voice: { services: { kokoro: { device: nvidia } } }
"""


@pytest.mark.parametrize("verb", ["plan", "up"])
def test_a_card_that_is_not_there_is_refused_and_nothing_is_made(world: World, lab: Path, verb: str) -> None:
    lab.write_text(FILE)
    assert world.command(verb, *(["--yes"] if verb == "up" else [])).ended(4) == world.snapshot
    assert (world.played, list(world.host.containers)) == ([], [])


def test_a_mix_that_is_none_is_refused_with_its_line(world: World, lab: Path) -> None:
    lab.write_text(FILE.replace("device: nvidia", 'default_voice: "af_bella++af_sky"'))
    assert world.command("validate").ended(64) == world.snapshot
