"""A rejoin that was cut off is told what was said to it the first time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provisioner.cluster import backup, readiness, runs
from provisioner.cluster.reaching import Reach
from provisioner.cluster.running import Job
from provisioner.cluster.runs import Run
from provisioner.providers.proxmox.shell import Shell
from provisioner.reconcile.runner import PlaybookResult
from provisioner.repair.record import Record, StepRecord, StepStatus
from provisioner.repair.rejoining import Kind
from provisioner.values.state import Execution
from provisioner.workflow import rejoining
from provisioner.workflow.rejoining import Wish
from provisioner.workflow.repairing import Hands
from tests.unit.repair.rejoin_case import read_case, situation


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Mapping[str, Any]]:
    """What the playbooks got: pve3 was removed from a cluster that is well otherwise."""
    seen = situation(read_case("removed"))
    plans: list[Mapping[str, Any]] = []

    @contextmanager
    def turn(*_: object, **__: object) -> Iterator[None]:
        yield

    def save(_shell: Shell, run: Run) -> Path:
        run.backup.mkdir(exist_ok=True)
        (run.backup / "sshd_config").write_text("PermitRootLogin no\n", encoding="utf-8")
        return run.backup

    def run_steps(job: Job, run: Run, *_: object) -> Run:
        plans.append(job.plan)
        return runs.write(run, replace(run.record, begun=("stop-corosync",), error="cut off"))

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(rejoining, "gather", lambda *_: seen.facts)
    monkeypatch.setattr(rejoining, "cluster_turn", turn)
    monkeypatch.setattr(rejoining, "run_steps", run_steps)
    monkeypatch.setattr(readiness, "ask", lambda *_: seen.ready)
    monkeypatch.setattr(backup, "save", save)
    monkeypatch.setattr(Shell, "run", lambda *_, **__: Execution(0, b"", b""))
    return plans


@pytest.mark.parametrize("said", [True, False])
def test_the_answer_about_sshd_is_remembered(given: list[Mapping[str, Any]], *, said: bool) -> None:
    hands = Hands(lambda *_, **__: PlaybookResult(0, ()), lambda _event: None)
    for restores in (said, False):
        with pytest.raises(Exception, match="Unable to finish"):
            rejoining.rejoin(Reach("x", "root@192.168.7.1"), Wish("pve3", restores_sshd=restores), hands)
    assert [one["restores_sshd"] for one in given] == [said, said]


def test_the_answer_for_another_runbook_does_not_count(given: list[Mapping[str, Any]]) -> None:
    """The light repair that was cut off is no part of the forced one that is needed now."""
    runs.begin(Record(Kind.LIGHT, "lab", "pve3", "pve1", runs.now(), plan={"restores_sshd": True}))
    hands = Hands(lambda *_, **__: PlaybookResult(0, ()), lambda _event: None)
    with pytest.raises(Exception, match="Unable to finish"):
        rejoining.rejoin(Reach("x", "root@192.168.7.1"), Wish("pve3"), hands)
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
    run = Run(tmp_path, Record(Kind.FORCED, "lab", "pve3", "pve1", runs.now(), steps=steps, begun=begun, plan=plan))
    assert rejoining.left_open(run) == ""  # nothing was saved
    run.backup.mkdir()
    (run.backup / "sshd_config").write_text(saved, encoding="utf-8")
    left = rejoining.left_open(run)
    assert left.startswith("PermitRootLogin yes stands in pve3's /etc/ssh/sshd_config now") is is_told
    command = f"cp {run.remote}/sshd_config /etc/ssh/sshd_config && systemctl reload ssh"
    assert ("on pve3 (root@10.0.0.3): " in left, left.endswith(command)) == (is_told, is_told)
