"""``verify --after-reboot``: containers are stopped and started before they prove themselves again."""

from __future__ import annotations

from provisioner.reconcile.runner import TaskEvent
from provisioner.values.state import Status
from tests.unit.cli.conftest import World

PROOF = TaskEvent("failed", "llama", "llama_cpp", "llama_cpp : verify | Complete", "no answer")


def done(world: World, *arguments: str) -> list[tuple[str, str]]:
    """What was done to which container, and that the verb ended well."""
    answer = world.done("verify", "--after-reboot", "--json", *arguments)
    return [(one["action"], one["target"]) for one in answer.of("apply_complete")]


def test_every_container_is_stopped_and_started_and_proves_itself(up: World) -> None:
    assert done(up)[2:] == [("start", "gateway"), ("start", "llama")]
    assert [playbook for playbook, _ in up.played] == ["verify.yml"]
    assert {one.instance.status for one in up.host.containers.values()} == {Status.RUNNING}
    assert up.host.locks == {}


def test_only_those_that_are_named(up: World) -> None:
    assert done(up, "llama") == [("stop", "llama"), ("start", "llama")]


def test_without_the_option_nothing_is_stopped(up: World) -> None:
    answer = up.command("verify", "--json")
    assert (answer.code, answer.of("apply_complete")) == (0, [])


def test_one_that_is_stopped_stays_so_and_is_a_finding(up: World) -> None:
    up.command("down", "llama", "--yes")
    answer = up.command("verify", "--after-reboot", "--json")
    assert answer.code == 3
    assert {one["target"] for one in answer.of("apply_complete")} == {"gateway"}
    assert "the container is stopped" in answer.of("diagnostic")[-1]["message"]


def test_a_proof_that_fails_afterwards_exits_3(up: World) -> None:
    up.failures["verify.yml"] = (PROOF,)
    assert up.command("verify", "--after-reboot").ended(3) == up.snapshot


def test_one_that_does_not_come_up_exits_3_and_keeps_no_other_one_down(up: World) -> None:
    up.host.never_ready.add("gateway")
    told = up.command("verify", "--after-reboot").ended(3)
    assert "Unable to prove that the lab works after a start of its containers" in told
    assert "Unable to start container gateway" in told
    assert up.host.containers["llama"].instance.status is Status.RUNNING
    assert up.host.locks == {}
