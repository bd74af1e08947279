"""``graph`` draws a file without touching a host."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from tests.unit.cli.conftest import World


def test_the_verb_prints_draws_and_gives_json(world: World, lab: Path) -> None:
    world.host.available = False
    assert world.command("graph").printed == world.snapshot
    result = world.command("graph", "--json").of("result")[0]
    assert [one["name"] for one in result["nodes"]] == ["llama", "gateway", "tiny"]
    assert {"source": "gateway/litellm", "target": "llama/llama_cpp"}.items() <= result["edges"][1].items()
    assert world.command("graph", "--svg", "lab.svg").out == "Wrote lab.svg.\n"
    assert ET.parse(lab.parent / "lab.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314  # our own file
    assert world.command("graph", "--dot").printed == world.snapshot
    assert world.command("graph", "--dot", "--svg", "lab.svg").code == 64
    assert world.command("graph", "--svg", "no/such/folder.svg").ended(64) == world.snapshot
