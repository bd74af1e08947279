"""``verify --after-reboot``: containers are stopped and started before they prove themselves again."""

from __future__ import annotations

import pytest

from provisioner.runner import TaskEvent
from provisioner.values.state import Status
from tests.unit.cli.conftest import World

PROOF = TaskEvent("failed", "llama", "llama_cpp", "llama_cpp : verify | Complete", "no answer")


@pytest.fixture
def lab_there(world: World) -> World:
    """A lab that works."""
    assert world.command("up", "--yes").code == 0
    world.played.clear()
    return world


def done(world: World, *arguments: str) -> list[tuple[str, str]]:
    """What was done to which container, and that the verb ended well."""
    answer = world.done("verify", "--after-reboot", "--json", *arguments)
    return [(one["action"], one["target"]) for one in answer.of("apply_complete")]


def test_every_container_is_stopped_and_started_and_proves_itself(lab_there: World) -> None:
    assert done(lab_there)[2:] == [("start", "gateway"), ("start", "llama")]
    assert [playbook for playbook, _ in lab_there.played] == ["verify.yml"]
    assert {one.instance.status for one in lab_there.host.containers.values()} == {Status.RUNNING}
    assert lab_there.host.locks == {}


def test_only_those_that_are_named(lab_there: World) -> None:
    assert done(lab_there, "llama") == [("stop", "llama"), ("start", "llama")]


def test_without_the_option_nothing_is_stopped(lab_there: World) -> None:
    answer = lab_there.command("verify", "--json")
    assert (answer.code, answer.of("apply_complete")) == (0, [])


def test_one_that_is_stopped_stays_so_and_is_a_finding(lab_there: World) -> None:
    lab_there.command("down", "llama", "--yes")
    answer = lab_there.command("verify", "--after-reboot", "--json")
    assert answer.code == 3
    assert {one["target"] for one in answer.of("apply_complete")} == {"gateway"}
    assert "the container is stopped" in answer.of("diagnostic")[-1]["message"]


def test_a_proof_that_fails_afterwards_exits_3(lab_there: World) -> None:
    lab_there.failures["verify.yml"] = (PROOF,)
    assert lab_there.command("verify", "--after-reboot").ended(3) == lab_there.snapshot


def test_one_that_does_not_come_up_exits_3_and_keeps_no_other_one_down(lab_there: World) -> None:
    lab_there.host.never_ready.add("gateway")
    told = lab_there.command("verify", "--after-reboot").ended(3)
    assert "Unable to prove that the lab works after a start of its containers" in told
    assert "Unable to start container gateway" in told
    assert lab_there.host.containers["llama"].instance.status is Status.RUNNING
    assert lab_there.host.locks == {}
