"""``adopt: true``: a container that somebody made by hand is marked, kept as a snapshot, configured, and then free."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from provisioner.hosts.fake import Container
from provisioner.values.state import Instance, Status
from tests.case_files import read_cases
from tests.unit.cli.conftest import World

CASES = read_cases("cli/adoption")

FILE: str = CASES["file"]
BY_HAND = Instance(
    "llama", "box", "", "", cpu=2, memory=2 * 2**30, disk=10 * 2**30, status=Status.RUNNING, address="192.0.2.9"
)


@pytest.fixture
def world_by_hand(world: World, lab: Path) -> World:
    """A host with a container that somebody made, and a file that takes it over."""
    lab.write_text(FILE)
    world.host.containers["llama"] = Container(BY_HAND, files={"/root/precious": b"1"})
    return world


def test_it_is_planned_in_words(world_by_hand: World) -> None:
    assert world_by_hand.command("plan").ended(0) == world_by_hand.snapshot
    assert world_by_hand.host.containers["llama"].instance == BY_HAND


def test_it_is_marked_kept_and_configured_and_the_second_run_is_free(world_by_hand: World) -> None:
    world_by_hand.done("up", "--yes")
    box = world_by_hand.host.containers["llama"]
    assert (box.instance.lab, box.instance.image) == ("homelab", "debian/12")
    assert box.files["/root/precious"] == b"1"
    assert [one.name for one in box.instance.snapshots] == ["provision-1-unproved"]
    assert box.states["provision-1-unproved"].instance.lab == "homelab", "so that one can go back to it"
    assert ("site.yml", ["containers/llama", "service_llama_cpp/llama"]) in world_by_hand.played
    world_by_hand.played.clear()
    again = world_by_hand.done("up", "--json")
    assert again.of("planned_change") == []
    assert world_by_hand.played == []


def test_one_that_is_stopped_is_started(world_by_hand: World) -> None:
    box = world_by_hand.host.containers["llama"]
    box.instance = replace(box.instance, status=Status.STOPPED, address=None)
    answer = world_by_hand.done("up", "--yes", "--json")
    assert {(one["target"], one["action"]) for one in answer.of("planned_change")} >= {
        ("llama", "adopt"),
        ("llama", "start"),
    }
    assert box.instance.status is Status.RUNNING
    assert answer.of("summary")[0]["counts"]["adopt"] == 1


@pytest.mark.parametrize(
    ("edit", "owner", "obstacles"),
    [
        (("    adopt: true\n", ""), "", {}),
        (("adopt: true", "adopt: true\n    disk: 5GiB"), "", {}),
        (("", ""), "other", {}),
        (("", ""), "", {"llama": "/srv is mounted writable"}),
    ],
    ids=["not asked for", "a replacement", "of another lab", "cannot be kept"],
)
def test_what_cannot_be_adopted_is_refused_before_the_mark_is_put_on(
    world_by_hand: World, lab: Path, edit: tuple[str, str], owner: str, obstacles: dict[str, str]
) -> None:
    lab.write_text(FILE.replace(*edit))
    there = replace(BY_HAND, lab=owner)
    world_by_hand.host.containers["llama"].instance = there
    world_by_hand.host.obstacles |= obstacles
    assert world_by_hand.command("up", "--yes").ended(4) == world_by_hand.snapshot
    assert world_by_hand.host.containers["llama"].instance == there


def test_where_there_is_none_it_is_created(world_by_hand: World) -> None:
    del world_by_hand.host.containers["llama"]
    answer = world_by_hand.done("up", "--yes", "--json")
    assert ("llama", "create") in {(one["target"], one["action"]) for one in answer.of("planned_change")}
