"""A container is not stopped by force while its services finish the answers that they are giving."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.cli.conftest import FILE, World

LONG = FILE.replace("model: tiny,", "model: tiny, drain: 10m,")
ANSWERING_S = 500.0
"""Longer than a drain by default, and shorter than the one of the file."""


@pytest.fixture
def answering(world: World, lab: Path) -> World:
    """The engine would need a while to finish its answers."""
    lab.write_text(LONG)
    assert world.command("up", "--yes").code == 0
    world.host.stops_in["llama"] = ANSWERING_S
    return world


@pytest.mark.parametrize(
    "words",
    [("down", "--yes"), ("verify", "--after-reboot"), ("up", "--yes", "--replace", "llama")],
    ids=["down", "a restart", "a replacement"],
)
def test_answers_have_the_time_of_the_file(answering: World, words: tuple[str, ...]) -> None:
    assert answering.command(*words).code == 0
    assert answering.host.killed == set()


def test_a_change_that_needs_a_restart_waits_as_long(answering: World) -> None:
    container = answering.host.containers["llama"]
    container.instance = replace(container.instance, nesting=True)
    assert answering.command("up", "--yes").ended(0) == answering.snapshot
    assert answering.host.killed == set()


def test_one_that_takes_longer_is_stopped_by_force(answering: World) -> None:
    answering.host.stops_in["llama"] = 700.0
    assert answering.command("down", "--yes").code == 0
    assert answering.host.killed == {"llama"}


def test_what_is_destroyed_is_not_waited_for(answering: World) -> None:
    assert answering.command("destroy", "--yes", "--lab", "homelab").code == 0
    assert answering.host.killed == {"llama"}


@pytest.mark.parametrize("given", ["0", "15", "8GiB", "2h", "-1m", "soon", "''", "[2m]"])
def test_what_is_no_duration_is_refused_with_its_line(world: World, lab: Path, given: str) -> None:
    lab.write_text(FILE.replace("model: tiny,", f"model: tiny, drain: {given},"))
    assert world.command("validate").ended(64) == world.snapshot
