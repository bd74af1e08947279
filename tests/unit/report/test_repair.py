"""What is said of a rejoin before and after: proofs, steps, dangers; no word of a node steers the terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.catalog.runbooks import known_runbook
from provisioner.repair.readiness import Readiness
from provisioner.repair.record import CommandRecord, Record, StepRecord, StepStatus
from provisioner.repair.refusals import rejoin_proofs
from provisioner.report.repair import dangers, nothing_text, record_text, rejoin_content, rejoin_text, runs_text
from tests.unit.repair.rejoin_case import read_case, situation

COMMAND = CommandRecord("pve3", ("timeout", "20", "cat", "/a b"), 1, "\n".join(f"line {n}" for n in range(20)), 0.25)
RECORD = Record(
    "stale-corosync-rejoin",
    "homelab",
    "pve3",
    "pve1",
    "2026-11-21T08:00:00+00:00",
    steps=(
        StepRecord("plan", "Refuse.", StepStatus.UNCHANGED),
        StepRecord("join", "Join.", StepStatus.FAILED, (COMMAND,), "pve3: it said no"),
        StepRecord("check-write", "Write.", StepStatus.NOT_REACHED),
    ),
    error="it said no",
    backup="/state/backup",
)


@pytest.mark.parametrize("name", ["host-key-unknown", "node-moved", "removed"])
def test_a_plan_says_why_what_was_proved_what_is_done_and_what_is_dangerous(
    name: str, snapshot: SnapshotAssertion
) -> None:
    seen = situation(read_case(name))
    assert rejoin_text(seen, rejoin_proofs(seen), known_runbook(seen.plan.kind)) == snapshot


def test_a_way_that_does_not_work_and_need_not_is_not_called_ok(snapshot: SnapshotAssertion) -> None:
    seen = situation(read_case("host-key-unknown"))
    seen = replace(seen, ready=Readiness(ssh_back="Host key verification failed."))
    assert rejoin_text(seen, rejoin_proofs(seen), known_runbook(seen.plan.kind)) == snapshot


def test_a_light_repair_does_not_warn_of_sshd() -> None:
    seen = situation(read_case("behind"))
    assert "PermitRootLogin" not in "".join(dangers(replace(seen, ready=None), known_runbook(seen.plan.kind)))


def test_nothing_to_do_says_by_what_it_is_known() -> None:
    seen = situation(read_case("healthy"))
    assert nothing_text(seen) == "pve3: nothing to do. It is a member like the others, with version 8."
    assert rejoin_content(seen, (), None)["runbook"] is None


def test_a_plan_for_programs_has_every_proof() -> None:
    seen = situation(read_case("removed"))
    proofs = rejoin_proofs(seen)
    content = rejoin_content(seen, proofs, known_runbook(seen.plan.kind))
    assert (content["runbook"], content["node"], content["lead"]) == ("stale-corosync-rejoin", "pve3", "pve1")
    assert content["proofs"] == list(proofs)
    assert [one["id"] for one in content["steps"]][:2] == ["plan", "prove-quorum"]


def test_what_a_node_says_does_not_steer_the_terminal() -> None:
    seen = situation(read_case("host-key-unknown"))
    seen = replace(seen, plan=replace(seen.plan, node="pve3\x1b[2J", reasons=("a\x1b[31mb",)))
    assert "\x1b" not in rejoin_text(seen, rejoin_proofs(seen), known_runbook(seen.plan.kind))
    step = replace(RECORD.steps[1], commands=(replace(COMMAND, output="\x1b[2J"),))
    assert "\x1b" not in record_text(replace(RECORD, steps=(step,), error="\x1b[0m"))


def test_a_record_shows_the_last_words_of_each_command(exact_snapshot: SnapshotAssertion) -> None:
    texts = (record_text(RECORD, "/state/run"), record_text(RECORD, with_commands=False))
    assert "\n\n".join(texts) == exact_snapshot


def test_runs_are_listed_with_how_they_ended(exact_snapshot: SnapshotAssertion) -> None:
    ended = replace(RECORD, error="", ended="2026-11-21T08:05:00+00:00")
    rows = [("one", RECORD, ("config.db",)), ("two", replace(ended, error="x"), ()), ("three", ended, ("authkey",))]
    assert runs_text(rows) + "\n\n" + runs_text(()) == exact_snapshot
