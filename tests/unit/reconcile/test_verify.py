"""``judge`` and ``prove``: whatever is broken, or was not looked at, is a finding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from provisioner.hosts.fake import FakeProvider
from provisioner.reconcile.configure import prove
from provisioner.reconcile.judge import judge, processor
from provisioner.reconcile.runner import PlaybookResult, TaskEvent
from provisioner.services.base import Processor
from provisioner.values.address import Address
from provisioner.values.facts import BUSY, DeviceMemory, Health, Proof, ProofStep, UnitState, Verdict, of_kind
from provisioner.values.state import Fleet, Instance, Secret, Service, Status

ENGINE = Service("llama_cpp", "a", "engine", {}, port=8080, unit="llama-server.service", health="/health")
GATEWAY = Service("litellm", "a", "gateway", {}, port=4000, unit="litellm.service", health="/ready")
WANTED = Instance("a", "box", "lab", "debian/12", services=(ENGINE,))
GOOD: dict[str, Any] = {"unit": "active", "health": 200, "proof": ""}
KINDS: dict[str, Any] = {"unit": UnitState, "health": Health, "proof": Proof}


def _findings(status: Status | None = Status.RUNNING, **seen: object) -> list[str]:
    there = [] if status is None else [Instance("a", "box", "lab", "debian/12", status=status)]
    facts = [KINDS[name](ENGINE.address, value) for name, value in seen.items()]
    return [one.message for one in judge(Fleet("lab", (WANTED,)), Fleet("lab", tuple(there)), facts)]


def test_all_well_is_no_finding() -> None:
    assert _findings(**GOOD) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"unit": "failed"}, "is failed"),
        ({"health": 503}, "answers 503"),
        ({"health": "Connection refused"}, "answers Connection refused"),
        ({"proof": "no completion"}, "proof failed"),
    ],
)
def test_each_broken_thing_is_found(change: dict[str, Any], words: str) -> None:
    (found,) = _findings(**(GOOD | change))
    assert words in found


def test_what_is_busy_is_not_broken() -> None:
    assert _findings(**GOOD | {"health": BUSY}) == []
    assert len(_findings(**GOOD | {"health": BUSY, "unit": "failed"})) == 1


def test_what_is_asleep_is_not_broken() -> None:
    assert _findings(**GOOD | {"unit": "asleep"}) == []
    assert len(_findings(**GOOD | {"unit": "asleep", "health": 503})) == 1


def test_what_was_not_looked_at_is_not_fine() -> None:
    assert len(_findings()) == 2


@pytest.mark.parametrize(("status", "words"), [(None, "does not exist"), (Status.STOPPED, "is stopped")])
def test_a_container_that_does_not_run_is_found(status: Status | None, words: str) -> None:
    (found,) = _findings(status, **GOOD)
    assert words in found


def _facts(events: Sequence[TaskEvent]) -> tuple[Proof | DeviceMemory | ProofStep, ...]:
    failures = tuple(event for event in events if event.status in {"failed", "unreachable"})

    def run(
        playbook: str, inventory: str, *, on_task: Callable[[TaskEvent], None], secrets: Sequence[Secret] = ()
    ) -> PlaybookResult:
        assert playbook == "verify.yml"
        assert "service_llama_cpp" in inventory
        assert not secrets
        for event in events:
            on_task(event)
        return PlaybookResult(2 if failures else 0, failures)

    instance = Instance("a", "box", "lab", "debian/12", services=(ENGINE, GATEWAY))
    return prove([instance], {"box": FakeProvider("box")}, run_playbook=run, emit=lambda _event: None)


def _proofs(events: Sequence[TaskEvent]) -> dict[str, Any]:
    return {str(proof.address): proof.failure for proof in of_kind(_facts(events), Proof)}


def _event(status: str, role: str, message: str = "") -> TaskEvent:
    return TaskEvent(status, "a", role, f"{role} : verify | Look", message)


def test_each_task_of_a_proof_that_was_run_is_a_step_of_it() -> None:
    events = [_event("start", "llama_cpp"), _event("ok", "llama_cpp"), _event("skipped", "llama_cpp")]
    failed = _event("failed", "llama_cpp", "HTTP 500")
    judged = TaskEvent("ok", "a", "llama_cpp", "llama_cpp : verify | Judge", came="Hello")
    steps = of_kind(_facts([*events, judged, failed]), ProofStep)
    address = Address("a/llama_cpp")
    assert steps == [
        ProofStep(address, "Look", well=True),
        ProofStep(address, "Judge", well=True, words="Hello"),
        ProofStep(address, "Look", well=False, words="HTTP 500"),
    ]


def test_a_proof_that_ran_to_its_end_is_true() -> None:
    assert _proofs([_event("ok", "llama_cpp"), _event("ok", "litellm")]) == {"a/llama_cpp": "", "a/litellm": ""}


def test_what_comes_after_a_failure_is_not_proved() -> None:
    found = _proofs([_event("ok", "llama_cpp"), _event("failed", "llama_cpp", "no answer")])
    assert found["a/llama_cpp"] == "no answer"
    assert "not proved" in found["a/litellm"]


def test_an_unreachable_container_proves_nothing() -> None:
    found = _proofs([TaskEvent("unreachable", "a", "", "Gathering Facts", "no socket")])
    assert all("no socket" in str(value) for value in found.values())


def test_a_play_that_reached_nothing_proves_nothing() -> None:
    assert set(_proofs([]).values()) == {"no task of its proof was run"}


def test_a_part_of_the_proof_in_a_file_of_its_own_is_proof() -> None:
    part = TaskEvent("ok", "a", "llama_cpp", "llama_cpp : verify_device | Judge")
    assert _proofs([part])["a/llama_cpp"] == ""
    other = TaskEvent("ok", "a", "llama_cpp", "llama_cpp : verifying | Judge")
    assert _proofs([other])["a/llama_cpp"] == "no task of its proof was run"


def test_what_a_proof_measures_is_a_fact_of_its_service() -> None:
    task = "llama_cpp : verify_device | Judge"
    event = TaskEvent("ok", "a", "llama_cpp", task, facts={"device_memory": 6_900 * 2**20})
    assert DeviceMemory(Address("a/llama_cpp"), 6_900 * 2**20) in _facts([event])


PROVED = Verdict(ENGINE.address, "GPU", "figures", "")


def asked(is_device: bool | None) -> Processor:
    return Processor(is_device, "no device was asked for" if is_device is False else "nobody knows")


@pytest.mark.parametrize(
    ("verdict", "wants_device", "healthy", "shown"),
    [
        (None, False, True, ("CPU", "no device was asked for")),
        (Verdict(ENGINE.address, "GPU", "an earlier one", ""), False, True, ("CPU", "no device was asked for")),
        (PROVED, True, True, ("GPU", "figures")),
        (PROVED, True, False, ("", "")),
        (PROVED, True, None, ("", "")),
        (None, True, True, ("device named, unproven", "not proved yet: provision verify")),
        (None, None, True, ("?", "nobody knows")),
        (PROVED, None, True, ("?", "nobody knows")),
    ],
)
def test_what_computes_is_said_of_what_was_proved(
    verdict: Verdict | None, wants_device: bool | None, healthy: bool | None, shown: tuple[str, str]
) -> None:
    assert processor(verdict, asked(wants_device), runs=True, healthy=healthy) == shown


@pytest.mark.parametrize("wants_device", [True, False])
def test_nothing_computes_for_what_does_not_run(wants_device: bool) -> None:
    assert processor(PROVED, asked(wants_device), runs=False, healthy=None) == ("", "")
