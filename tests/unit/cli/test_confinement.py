"""Hosts that can hold a container that runs code of others to what it reaches: planned, done, told where one cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import FILE, World

REACHES = ("192.168.1.20:8123", "llama.incus:8080", "registry.lan:5000")
WEB = f"""\
  web:
    services:
      oci:
        image: registry.lan:5000/web@sha256:{"a" * 64}
        image_port: 80
        pages: [/]
        reaches: [internet, llama/llama_cpp, "192.168.1.20:8123"]
"""


@pytest.fixture
def world(world: World, lab: Path) -> World:
    """The lab with an image in it, on a host that holds containers to what they reach."""
    lab.write_text(FILE + WEB)
    world.host.confines = True
    return world


def held(world: World, **attributes: Any) -> Any:
    """Return what the container with the image is held to, after somebody gave it these attributes."""
    container = world.host.containers["web"]
    container.instance = replace(container.instance, **attributes)
    return container.instance.reaches


def test_what_runs_code_of_others_is_held_and_nothing_else(up: World) -> None:
    assert held(up) == REACHES
    assert {name for name, one in up.host.containers.items() if one.instance.reaches is not None} == {"web"}
    up.done("plan", "--detailed-exitcode")


def test_what_is_not_held_as_the_file_says_is_planned_and_mended(up: World) -> None:
    held(up, reaches=None)
    assert up.command("plan", "--detailed-exitcode").ended(2) == up.snapshot
    up.done("up", "--yes")
    assert held(up) == REACHES
    assert up.played == [], "no role is run for it"


def test_a_host_that_refuses_is_told_and_the_lab_is_there(world: World) -> None:
    world.host.refusal = "ct state: Protocol error"
    answer = world.done("up", "--yes")
    assert "Host box cannot hold container web to what it reaches: rules in it alone do" in answer.err + answer.out
    world.done("plan", "--detailed-exitcode")


def test_without_code_of_others_it_is_let_go(up: World, lab: Path) -> None:
    lab.write_text(FILE + "  web: {}\n")
    up.done("up", "--yes")
    assert held(up) is None


def test_a_host_that_has_no_such_rules_is_asked_for_none(up: World) -> None:
    held(up, reaches=None)
    up.host.confines = False
    up.done("plan", "--detailed-exitcode")
