"""What is said of a rejoin before and after: proofs, steps, dangers; no word of a node steers the terminal."""

from __future__ import annotations

from dataclasses import replace

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


def test_a_plan_says_why_what_was_proved_what_is_done_and_what_is_dangerous() -> None:
    seen = situation(read_case("host-key-unknown"))
    text = rejoin_text(seen, rejoin_proofs(seen), known_runbook(seen.plan.kind))
    for words in (
        "pve3 in cluster lab: stale-corosync-rejoin",
        "Its key is not the cluster's",
        "  ok   quorum: pve1: quorate, 2 of 3 votes, 2 needed",
        "  FAIL ssh from pve3 to pve1: Host key verification failed.",
        "What to do: pvecm add asks nobody.",
        "  1. Refuse to run",
        "pvecm add writes PermitRootLogin yes",
        "Way back: provision cluster restore",
    ):
        assert words in text


def test_a_way_that_does_not_work_and_need_not_is_not_called_ok() -> None:
    seen = situation(read_case("host-key-unknown"))
    back = Readiness(ssh_back="Host key verification failed.")
    text = rejoin_text(seen, rejoin_proofs(replace(seen, ready=back)), known_runbook(seen.plan.kind))
    assert "  note ssh from pve1 to pve3: not yet: Host key verification failed. (it need not:" in text
    assert "  ok   ssh from pve1 to pve3" not in text


def test_a_light_repair_does_not_warn_of_sshd() -> None:
    seen = situation(read_case("behind"))
    assert not any(
        "PermitRootLogin" in one for one in dangers(replace(seen, ready=None), known_runbook(seen.plan.kind))
    )


def test_a_removal_from_the_list_is_said() -> None:
    seen = situation(read_case("node-moved"))
    assert any(
        "is removed from the cluster's list for a moment" in one for one in dangers(seen, known_runbook(seen.plan.kind))
    )


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


def test_a_record_shows_the_last_words_of_each_command() -> None:
    text = record_text(RECORD, "/state/run")
    assert "FAIL join: Join." in text
    assert "pve3$ timeout 20 cat '/a b'  (1, 0.2s)" in text
    assert "… 8 lines before" in text
    assert "line 19" in text
    assert "line 7\n" not in text
    assert text.endswith("Failed: it said no\nBackup: /state/backup\nRecord: /state/run")
    assert "timeout" not in record_text(RECORD, with_commands=False)


def test_runs_are_listed_with_how_they_ended() -> None:
    ended = replace(RECORD, error="", ended="2026-11-21T08:05:00+00:00")
    rows = [("one", RECORD, ("config.db",)), ("two", replace(ended, error="x"), ()), ("three", ended, ("authkey",))]
    first, second, third = runs_text(rows).splitlines()[1:]
    assert ("killed" in first, "failed" in second, "2026-11-21T08:05" in third) == (True, True, True)
    assert "nothing" in second
    assert "no repair was run" in runs_text(())
