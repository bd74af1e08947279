"""A rejoin: its plan as text, what its playbook gets, and that one that was cut off is told what was said to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.cluster import backup, rejoin
from provisioner.cluster.gather import Reach
from provisioner.cluster.record import Record, Run, StepRecord, StepStatus, create_run, now, write_record
from provisioner.cluster.rejoin import (
    RejoinOptions,
    dangers,
    join_options,
    nodes_after,
    nothing_text,
    playbook_plan,
    rejoin_content,
    rejoin_text,
)
from provisioner.cluster.rejoin_plan import Entry, Kind
from provisioner.cluster.rejoin_preconditions import Readiness, rejoin_proofs
from provisioner.cluster.run import Effects, Job
from provisioner.cluster.runbooks import known_runbook
from provisioner.hosts.proxmox.ssh import Shell
from provisioner.reconcile.runner import PlaybookResult
from provisioner.values.state import Execution
from tests.unit.cluster.rejoin_case import CASES, read_case, situation


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (Entry(3, 1, ("10.0.0.3",)), "--use_ssh --force --votes 1 --nodeid 3 --link0 10.0.0.3"),
        (Entry(None, 3, ("10.0.0.3",)), "--use_ssh --force --votes 3 --link0 10.0.0.3"),
        (
            Entry(4, 0, ("fd00::3", "10.1.0.3")),
            "--use_ssh --force --votes 0 --nodeid 4 --link0 fd00::3 --link1 10.1.0.3",
        ),
    ],
)
def test_the_options_keep_votes_id_and_every_link(entry: Entry, expected: str) -> None:
    assert join_options(entry) == expected.split()


@pytest.mark.parametrize("case", ["behind", "removed", "cut-off-at-the-end", "id-reused"])
def test_the_nodes_that_there_will_be_are_counted(case: str) -> None:
    assert nodes_after(situation(read_case(case))) == 3


@pytest.mark.parametrize("case", CASES)
def test_a_plan_is_of_json_and_goes_to_the_address_that_the_nodes_know(case: str) -> None:
    seen = situation(read_case(case))
    plan = playbook_plan(seen, rejoin_proofs(seen), "/var/lib/provisioner/repair/x", restores_sshd=False)
    assert json.loads(json.dumps(plan)) == plan
    assert ("join_options" in plan) == (seen.plan.entry is not None)
    if seen.plan.entry is not None:
        assert plan["lead_address"] == "10.0.0.1"


REMOVED = situation(read_case("removed"))


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Mapping[str, Any]]:
    """What the playbooks got: pve3 was removed from a cluster that is well otherwise."""
    seen = REMOVED
    plans: list[Mapping[str, Any]] = []

    @contextmanager
    def lock(*_: object, **__: object) -> Iterator[None]:
        yield

    def save(_shell: Shell, run: Run) -> Path:
        run.backup.mkdir(exist_ok=True)
        (run.backup / "sshd_config").write_text("PermitRootLogin no\n", encoding="utf-8")
        return run.backup

    def run_steps(job: Job, run: Run, *_: object) -> Run:
        plans.append(job.plan)
        return write_record(run, replace(run.record, begun=("stop-corosync",), error="cut off"))

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(rejoin, "gather", lambda *_: seen.facts)
    monkeypatch.setattr(rejoin, "cluster_lock", lock)
    monkeypatch.setattr(rejoin, "run_steps", run_steps)
    monkeypatch.setattr(rejoin, "ask_readiness", lambda *_: seen.ready)
    monkeypatch.setattr(backup, "save", save)
    monkeypatch.setattr(Shell, "run", lambda *_, **__: Execution(0, b"", b""))
    return plans


@pytest.mark.parametrize("said", [True, False])
def test_the_answer_about_sshd_is_remembered(given: list[Mapping[str, Any]], *, said: bool) -> None:
    effects = Effects(lambda *_, **__: PlaybookResult(0, ()), lambda _event: None)
    for restores in (said, False):
        options = RejoinOptions("pve3", restores_sshd=restores)
        with pytest.raises(Exception, match="Unable to finish"):
            rejoin.rejoin_node(Reach("x", "root@192.168.7.1"), REMOVED.facts, options, effects)
    assert [one["restores_sshd"] for one in given] == [said, said]


def test_the_answer_for_another_runbook_does_not_count(given: list[Mapping[str, Any]]) -> None:
    """The light repair that was cut off is no part of the forced one that is needed now."""
    create_run(Record(Kind.LIGHT, "lab", "pve3", "pve1", now(), plan={"restores_sshd": True}))
    effects = Effects(lambda *_, **__: PlaybookResult(0, ()), lambda _event: None)
    with pytest.raises(Exception, match="Unable to finish"):
        rejoin.rejoin_node(Reach("x", "root@192.168.7.1"), REMOVED.facts, RejoinOptions("pve3"), effects)
    assert [one["restores_sshd"] for one in given] == [False]


@pytest.mark.parametrize(
    ("saved", "status", "begun", "is_told"),
    [
        ("#PermitRootLogin yes\n", StepStatus.LEFT_OUT, ("join",), True),
        ("PermitRootLogin prohibit-password\n", StepStatus.NOT_REACHED, ("join",), True),
        ("PermitRootLogin yes\n", StepStatus.LEFT_OUT, ("join",), False),
        ("PermitRootLogin no\n", StepStatus.DONE, ("join",), False),
        ("PermitRootLogin no\n", StepStatus.UNCHANGED, ("join",), False),
        ("PermitRootLogin no\n", StepStatus.LEFT_OUT, ("stop-corosync",), False),
    ],
)
def test_what_pvecm_left_in_sshd_config_is_said_at_the_end(
    tmp_path: Path, saved: str, status: StepStatus, begun: tuple[str, ...], *, is_told: bool
) -> None:
    steps = (StepRecord("restore-sshd", "Put it back.", status),)
    plan = {"addresses": ["10.0.0.3"]}
    run = Run(tmp_path, Record(Kind.FORCED, "lab", "pve3", "pve1", now(), steps=steps, begun=begun, plan=plan))
    assert rejoin.left_open(run) == ""  # nothing was saved
    run.backup.mkdir()
    (run.backup / "sshd_config").write_text(saved, encoding="utf-8")
    left = rejoin.left_open(run)
    assert left.startswith("PermitRootLogin yes stands in pve3's /etc/ssh/sshd_config now") is is_told
    command = f"cp {run.remote}/sshd_config /etc/ssh/sshd_config && systemctl reload ssh"
    assert ("on pve3 (root@10.0.0.3): " in left, left.endswith(command)) == (is_told, is_told)


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
