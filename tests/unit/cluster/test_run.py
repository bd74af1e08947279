"""A repair's record, true after every word of Ansible's: a kill leaves what was done; its inventory, and its lock."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.cluster import run as running
from provisioner.cluster.facts import Condition, Diagnosis
from provisioner.cluster.record import (
    Record,
    Run,
    StepRecord,
    StepStatus,
    all_runs,
    create_run,
    record_json,
    record_of,
    unfinished_run,
    write_record,
)
from provisioner.cluster.run import Job, inventory, node_lock, run_steps
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.ssh import Shell
from provisioner.reconcile.runner import PlaybookResult, RunCommand, TaskEvent
from provisioner.values.errors import LockedError, ProvisionError, UnavailableError
from tests.unit.hosts.proxmox.nearby import Nearby, nearby, shell

STEPS = (
    StepRecord("prove", "Prove it.", StepStatus.NOT_REACHED),
    StepRecord("join", "Join.", StepStatus.NOT_REACHED),
    StepRecord("check", "Check it.", StepStatus.NOT_REACHED),
)


RECORD = Record(
    "stale-corosync-rejoin", "homelab", "pve3", "pve1", "2026-11-21T08:00:00+00:00", steps=STEPS,
    before=(Diagnosis(Condition.REMOVED, "pve3", "It was removed.", ("a line",), "stale-corosync-rejoin"),),
)  # fmt: skip


NO_JOB = Job({}, {})


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def _event(status: str, task: str, **more: Any) -> TaskEvent:
    return TaskEvent(status, "pve3", "", task, **more)


def _playbook(events: list[TaskEvent], code: int = 0) -> Callable[..., PlaybookResult]:
    def run_playbook(_playbook: str, _inventory: str, **given: Any) -> PlaybookResult:
        for one in events:
            given["on_task"](one)
        return PlaybookResult(code, tuple(one for one in events if one.status == "failed"))

    return run_playbook


def _scalar(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> str:
    return str(loader.construct_scalar(node))


def _statuses(run: Run) -> list[str]:
    return [one.status.name for one in run.record.steps]


def test_every_step_ends_as_its_tasks_did() -> None:
    events = [
        _event("start", "prove | Look"),
        _event("ok", "prove | Look", commands=(RunCommand(("pvecm", "status"), 0, "Quorate: Yes", 0.5),)),
        _event("start", "join | Stop"),
        _event("changed", "join | Stop"),
        _event("start", "join | Add"),
        _event("changed", "join | Add", commands=(RunCommand(("pvecm", "add"), 0, "successfully added"),)),
        _event("start", "check | Wait"),
        _event("skipped", "check | Wait"),
    ]
    told: list[str] = []
    run = run_steps(NO_JOB, create_run(RECORD), _playbook(events), lambda step: told.append(step.does))
    assert _statuses(run) == ["UNCHANGED", "DONE", "LEFT_OUT"]
    assert told == ["Prove it.", "Join.", "Check it."]
    assert [one.argv for one in run.record.steps[0].commands] == [("pvecm", "status")]
    assert run.record.steps[0].commands[0].output == "Quorate: Yes"
    assert run.record.begun == ("prove", "join", "check")
    assert record_of((run.folder / "record.json").read_text(encoding="utf-8")) == run.record


def test_a_failure_stops_at_its_step_and_is_unfinished() -> None:
    events = [
        _event("start", "prove | Look"),
        _event("ok", "prove | Look"),
        _event("start", "join | Add"),
        _event("failed", "join | Add", message="it said no"),
    ]
    run = run_steps(NO_JOB, create_run(RECORD), _playbook(events, 2))
    assert _statuses(run) == ["UNCHANGED", "FAILED", "NOT_REACHED"]
    assert run.record.error == "pve3: join | Add: it said no"
    assert run.record.is_unfinished
    assert run.record.steps[1].message == "pve3: it said no"


def test_a_kill_leaves_the_step_that_it_was_at() -> None:
    def killed(_playbook: str, _inventory: str, **given: Any) -> PlaybookResult:
        given["on_task"](_event("start", "prove | Look"))
        given["on_task"](_event("ok", "prove | Look", commands=(RunCommand(("pvecm", "status"), 0),)))
        given["on_task"](_event("start", "join | Add"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_steps(NO_JOB, create_run(RECORD), killed)
    left = unfinished_run("homelab", "pve3")
    assert left
    assert _statuses(left) == ["UNCHANGED", "BEGUN", "NOT_REACHED"]
    assert left.record.has_begun("join")
    # It is killed again, before it comes to that step: that the step was once begun must not be forgotten.
    with pytest.raises(KeyboardInterrupt):
        run_steps(NO_JOB, left, lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    again = unfinished_run("homelab", "pve3")
    assert again
    assert again.record.has_begun("join")
    assert [one.argv for one in again.record.steps[0].commands] == [("pvecm", "status")]


def test_a_run_without_a_word_says_so() -> None:
    run = run_steps(NO_JOB, create_run(RECORD), _playbook([], 4))
    assert "before it did anything" in run.record.error


def test_files_and_folders_are_private_and_two_runs_have_two() -> None:
    one, two = create_run(RECORD), create_run(RECORD)
    assert one.folder != two.folder
    assert one.name == "20261121T080000Z-stale-corosync-rejoin-pve3"
    for path in (one.folder, one.folder.parent):
        assert path.stat().st_mode & 0o077 == 0, path
    assert (one.folder / "record.json").stat().st_mode & 0o777 == 0o600


def test_only_the_newest_run_of_the_node_can_be_unfinished() -> None:
    assert unfinished_run("homelab", "pve3") is None
    create_run(RECORD)
    create_run(replace(RECORD, node="pve2"))
    left = unfinished_run("homelab", "pve3")
    assert left
    assert left.record.node == "pve3"
    write_record(left, replace(left.record, ended="2026-11-21T08:01:00+00:00"))
    assert unfinished_run("homelab", "pve3") is None


@pytest.mark.parametrize("name", ["../../etc", "", ".", "a/b", "-rf", "a" * 64, "a\nb"])
def test_a_name_from_a_node_is_no_path(name: str) -> None:
    with pytest.raises(ProvisionError, match="no name of a node"):
        create_run(replace(RECORD, cluster=name))
    with pytest.raises(ProvisionError, match="no name of a node"):
        create_run(replace(RECORD, node=name))


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    run = create_run(RECORD)
    (run.folder / "record.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ProvisionError, match=run.name):
        all_runs()
    assert tmp_path in run.folder.parents


def test_a_record_survives_json() -> None:
    assert record_of(record_json(RECORD)) == RECORD


def test_words_of_a_node_stay_data_in_the_inventory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    shell = Shell(Access("", "", ssh="root@[fd00::1]:2222", ssh_config=tmp_path / "a b"))
    hostile = "{{ lookup('pipe', 'touch /pwned') }}"
    text = inventory(Job({"node": {"pve3": shell}}, {"why": hostile, "links": ["10.0.0.1"], "votes": 3}))
    assert f'!unsafe "{hostile}"' in text

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_constructor("!unsafe", _scalar)
    host = yaml.load(text, Loader)["all"]["children"]["node"]["hosts"]["pve3"]  # noqa: S506 - a safe loader of ours
    assert host["ansible_host"] == "fd00::1"
    assert host["ansible_user"] == "root"
    assert host["repair_plan"] == {"why": hostile, "links": ["10.0.0.1"], "votes": 3}
    for option in ("StrictHostKeyChecking=yes", "BatchMode=yes", f"-F '{tmp_path}/a b'", "-p 2222", f"{shell.socket}"):
        assert option in host["ansible_ssh_args"]
    assert os.fspath(tmp_path) in host["ansible_ssh_args"]


__all__ = ["nearby", "shell"]  # fixtures


def answers(nearby: Nearby, command: str) -> None:
    """Let the node run this instead of what it is told."""
    ssh = nearby.folder / "ssh"
    ssh.write_text(ssh.read_text(encoding="ascii").replace('exec sh -c "$3"', f"exec {command}"), encoding="ascii")


def test_whoever_has_the_lock_works(shell: Shell, nearby: Nearby) -> None:
    answers(nearby, "sh -c 'echo noise; echo turn:mine; cat >/dev/null'")
    with node_lock(shell, "me"):
        worked = True
    assert worked


def test_who_has_it_is_said(shell: Shell, nearby: Nearby) -> None:
    answers(nearby, "sh -c 'echo turn:busy; echo penny, since noon'")
    with pytest.raises(LockedError) as caught, node_lock(shell, "me"):
        pass
    assert caught.value.details == "penny, since noon"


def test_a_node_that_never_stops_talking_is_not_listened_to(
    shell: Shell, nearby: Nearby, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "CONNECT_TIMEOUT_S", 0.5)
    answers(nearby, "yes 'this goes on for ever'")
    with pytest.raises(UnavailableError) as caught, node_lock(shell, "me"):
        pass
    assert len(caught.value.details) <= 2 * running.ANSWER_BYTES


def test_a_node_that_says_nothing_is_not_waited_for(
    shell: Shell, nearby: Nearby, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "ANSWER_S", 0.5)
    monkeypatch.setattr(running, "CONNECT_TIMEOUT_S", 0.5)
    answers(nearby, "sleep 70401")
    began = time.monotonic()
    with pytest.raises(UnavailableError), node_lock(shell, "me"):
        pass
    assert time.monotonic() - began < 20
