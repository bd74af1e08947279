"""The record of a repair as text; no word of a node steers the terminal."""

from __future__ import annotations

from dataclasses import replace

from syrupy.assertion import SnapshotAssertion

from provisioner.cluster.record import CommandRecord, Record, StepRecord, StepStatus
from provisioner.cluster.rejoin import rejoin_text
from provisioner.cluster.rejoin_preconditions import rejoin_proofs
from provisioner.cluster.runbooks import known_runbook
from provisioner.cluster.text import record_text, runs_text
from tests.unit.cluster.rejoin_case import read_case, situation

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
