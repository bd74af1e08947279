"""The runner on this machine's own Ansible: results, failures, interruptions, and secrets that stay unwritten."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from provisioner.reconcile.runner import PlaybookResult, TaskEvent, ansible_environment, run_playbook, task_event
from provisioner.values import paths
from provisioner.values.errors import PlaybookError
from provisioner.values.state import Secret
from tests.processes import killed_at_end
from tests.waiting import wait_until

CANARY = "CANARY-7f3a-value"
INVENTORY = """
all:
  hosts:
    localhost:
      ansible_connection: local
      ansible_python_interpreter: "{{ ansible_playbook_python }}"
      token: "{{ lookup('provision_secret', 'it%27s') }}"
"""


def _playbook(folder: Path, tasks: str) -> str:
    file = folder / "play.yml"
    file.write_text(f"- hosts: localhost\n  gather_facts: false\n  tasks:\n{tasks}", encoding="utf-8")
    return str(file)


def _files_with(text: str, folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and text.encode() in file.read_bytes()]


def test_a_secret_arrives_and_is_written_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_SECRET_OTHER", CANARY)
    seen = tmp_path / "seen"
    playbook = _playbook(
        tmp_path,
        f"""
    - name: Use it
      ansible.builtin.copy:
        content: "{{{{ token | length }}}} {{{{ lookup('env', 'PROVISION_SECRET_OTHER') }}}}"
        dest: {seen}
        mode: "0600"
      no_log: true
    - name: Keep what is on disk while the run goes on
      ansible.builtin.command: grep -rl {CANARY[:-1]}[e] {tmp_path}/lab
      register: found
      failed_when: found.rc != 1
      changed_when: false
""",
    )
    events: list[TaskEvent] = []
    result = run_playbook(
        playbook, INVENTORY, folder=tmp_path / "lab", secrets=[Secret("it's", CANARY)], on_task=events.append
    )
    result.raise_for_failure("run the test")
    assert seen.read_text(encoding="utf-8") == f"{len(CANARY)} "
    assert _files_with(CANARY, tmp_path) == []
    assert result.changed == {"localhost": 1}
    assert [(one.status, one.task) for one in events][:2] == [("start", "Use it"), ("ok", "Use it")]
    assert not list((tmp_path / "lab").glob("run-*"))
    mine = f"provision-{os.getpid()}-*/secrets.json"  # another run on this machine may be under way
    assert not list(Path("/dev/shm").glob(mine))  # noqa: S108  # where secrets are during a run


def test_a_failure_says_what_the_task_said(tmp_path: Path) -> None:
    playbook = _playbook(tmp_path, '    - name: Break\n      ansible.builtin.fail:\n        msg: "no such thing"\n')
    result = run_playbook(playbook, INVENTORY, folder=tmp_path / "lab")
    with pytest.raises(PlaybookError) as caught:
        result.raise_for_failure("do it")
    assert "Unable to do it" in str(caught.value)
    assert "Break: no such thing" in caught.value.details
    assert result.log is not None
    assert "no such thing" in result.log.read_text(encoding="utf-8")


def test_a_run_that_ends_without_a_task_is_a_failure_too(tmp_path: Path) -> None:
    playbook = _playbook(tmp_path, "    - nonsense.module.name: {}\n")
    with pytest.raises(PlaybookError, match="nonsense"):
        run_playbook(playbook, INVENTORY, folder=tmp_path / "lab").raise_for_failure("do it")


def test_what_a_container_said_is_kept_without_colours_and_without_secrets(tmp_path: Path) -> None:
    awkward = f'{CANARY} "quoted" {chr(92)} back'
    events: list[TaskEvent] = []
    playbook = _playbook(tmp_path, '    - name: Break\n      ansible.builtin.fail: { msg: "it said {{ token }}" }\n')
    result = run_playbook(
        playbook, INVENTORY, folder=tmp_path / "lab", secrets=[Secret("it's", awkward)], on_task=events.append
    )
    assert result.log is not None
    log = result.log.read_text(encoding="utf-8")
    assert "it said ********" in log
    assert "CANARY" not in log
    assert "\x1b" not in log
    assert result.failures[0].message == "it said ********"
    assert "CANARY" not in str(events)


def test_a_run_that_was_ended_did_not_finish_whatever_failed_before(tmp_path: Path) -> None:
    numbers = f"{tmp_path}/lab/run-*/ansible-playbook.pid"
    tasks = f"""
    - name: End Ansible
      ansible.builtin.shell: kill $(cat {numbers})
"""
    playbook = _playbook(tmp_path, tasks)
    ended = run_playbook(playbook, INVENTORY, folder=tmp_path / "lab")
    assert not ended.finished
    with pytest.raises(PlaybookError, match="Unable to do it"):
        ended.raise_for_failure("do it")
    quiet = _playbook(tmp_path, "    - name: Do nothing\n      ansible.builtin.meta: noop\n")
    assert run_playbook(quiet, INVENTORY, folder=tmp_path / "lab").finished


def test_of_a_play_for_each_service_ansible_reads_those_that_have_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "playbooks", lambda: tmp_path)
    task = {"ansible.builtin.debug": {"msg": "it runs"}}
    plays = [
        {"hosts": "service_none", "roles": ["there_is_no_such_role"]},
        {"hosts": "here", "gather_facts": False, "tasks": [task]},
    ]
    (tmp_path / "site.yml").write_text(yaml.safe_dump(plays), encoding="utf-8")
    inventory = "all: {children: {here: {hosts: {localhost: {ansible_connection: local, x: !unsafe '{{ y }}'}}}}}"
    result = run_playbook("site.yml", inventory, folder=tmp_path / "lab")
    result.raise_for_failure("run the test")
    assert result.log is not None
    assert result.log.name.endswith("-site.log")
    assert "it runs" in result.log.read_text(encoding="utf-8")


@pytest.mark.parametrize(("playbook", "interval_s"), [("artifacts.yml", 0.02), ("site.yml", 0.001)])
def test_ansible_looks_seldom_at_what_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, playbook: str, interval_s: float
) -> None:
    monkeypatch.setattr(paths, "playbooks", lambda: tmp_path)
    look = "looks every {{ lookup('ansible.builtin.config', 'DEFAULT_INTERNAL_POLL_INTERVAL') }} s"
    plays = [{"hosts": "here", "gather_facts": False, "tasks": [{"ansible.builtin.debug": {"msg": look}}]}]
    (tmp_path / playbook).write_text(yaml.safe_dump(plays), encoding="utf-8")
    inventory = "all: {children: {here: {hosts: {localhost: {ansible_connection: local}}}}}"
    result = run_playbook(playbook, inventory, folder=tmp_path / "lab")
    result.raise_for_failure("run the test")
    assert result.log is not None
    assert f"looks every {interval_s} s" in result.log.read_text(encoding="utf-8")


def test_a_missing_secret_fails_the_task(tmp_path: Path) -> None:
    playbook = _playbook(tmp_path, '    - name: Show\n      ansible.builtin.debug:\n        msg: "{{ token }}"\n')
    result = run_playbook(playbook, INVENTORY, folder=tmp_path / "lab", secrets=[Secret("other", "x")])
    assert "it%27s" in result.failures[0].message


def test_hidden_results_stay_hidden() -> None:
    event = {
        "event": "runner_on_failed",
        "event_data": {"host": "a", "task": "t", "role": "r", "res": {"censored": "x", "msg": CANARY}},
    }
    seen = task_event(event)
    assert seen is not None
    assert CANARY not in seen.message


def test_a_module_that_found_no_place_for_a_file_says_that_nothing_can_be_written() -> None:
    told = "FileNotFoundError: [Errno 2] No usable temporary directory found in ['/tmp', '/var/tmp', '/usr/tmp']"
    result = {"msg": "Module result deserialization failed", "module_stderr": f"Traceback\n  File\n{told}\n"}
    event = {"event": "runner_on_failed", "event_data": {"host": "a", "task": "t", "role": "r", "res": result}}
    seen = task_event(event)
    assert seen is not None
    assert seen.message.startswith("Nothing can be written there: the disk is full")


def test_nothing_failed_is_its_own_result() -> None:
    result = PlaybookResult(0)
    assert result.raise_for_failure("x") is result


def test_the_environment_blanks_the_callers_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_SECRET_A", CANARY)
    assert CANARY not in ansible_environment().values()
    assert ansible_environment()["PROVISION_SECRET_A"] == ""


def test_what_a_killed_run_left_goes_with_the_next(tmp_path: Path) -> None:
    lab = tmp_path / "lab"
    gone, alive = lab / "run-4194305-x", lab / f"run-{os.getppid()}-x"  # no process has a number above 2^22
    for folder in (gone, alive):
        folder.mkdir(parents=True)
    playbook = _playbook(tmp_path, "    - name: Do nothing\n      ansible.builtin.meta: noop\n")
    run_playbook(playbook, INVENTORY, folder=lab).raise_for_failure("run the test")
    assert not gone.exists()
    assert alive.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_ansible_ends_with_a_run_that_is_killed_or_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    begun, lab = tmp_path / "begun", tmp_path / "lab"
    tasks = f"""
    - name: Write nothing for a while
      ansible.builtin.command: sh -c "touch {begun}; sleep 61"
"""
    run = f"run_playbook({_playbook(tmp_path, tasks)!r}, {INVENTORY!r}, folder=Path({str(lab)!r}))"
    program = f"from pathlib import Path\nfrom provisioner.reconcile.runner import run_playbook\n{run}"
    with killed_at_end(subprocess.Popen([sys.executable, "-c", program], start_new_session=True)) as process:
        wait_until(begun.exists)
        assert left_in(lab)
        process.send_signal(number)
        process.wait(60)
    wait_until(lambda: not left_in(lab), timeout_s=20)


def left_in(lab: Path) -> list[str]:
    """The processes of Ansible that work for a run in that folder, as ``ps`` has them."""
    said = subprocess.run(
        ["ps", "-ww", "-eo", "pid,args"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    return [one for one in said.splitlines() if "ansible-playbook" in one and str(lab) in one]


def test_the_hubs_token_is_not_in_the_environment_that_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", CANARY)
    monkeypatch.setenv("HUGGING_FACE_HUB_TOKEN", CANARY)
    assert CANARY not in ansible_environment().values()


@pytest.mark.parametrize(("result", "words"), [({"msg": "1 of 2 GB have come"}, "1 of 2 GB have come"), ({}, "")])
def test_a_task_that_is_called_again_tells_how_far_it_is(result: dict[str, str], words: str) -> None:
    event = task_event({"event": "runner_retry", "event_data": {"task": "Download", "host": "a", "res": result}})
    assert event is not None
    assert (event.status, event.message) == ("retry", words)


def test_what_a_module_measured_comes_with_its_task() -> None:
    data = {"host": "a", "task": "verify | Judge", "role": "r", "res": {"provision_facts": {"device_memory": 5}}}
    event = task_event({"event": "runner_on_ok", "event_data": data})
    assert event is not None
    assert event.facts == {"device_memory": 5}
    hidden = task_event({"event": "runner_on_ok", "event_data": {**data, "res": {"censored": "x"}}})
    assert hidden is not None
    assert hidden.facts == {}


def test_what_commands_said_is_told_but_not_of_a_task_with_a_secret(tmp_path: Path) -> None:
    playbook = _playbook(
        tmp_path,
        """
    - name: Say something
      ansible.builtin.command: {argv: [sh, -c, "echo out; echo err >&2; exit 3"]}
      register: said
      changed_when: false
      failed_when: said.rc != 3
    - name: Say twice
      ansible.builtin.command: {argv: [echo, "{{ item }}"]}
      loop: [a, b]
      changed_when: false
    - name: Hide it
      ansible.builtin.command: {argv: [echo, "{{ token }}"]}
      changed_when: false
      no_log: true
    - name: No command
      ansible.builtin.stat: {path: /}
""",
    )
    events: list[TaskEvent] = []
    secrets = [Secret("it's", CANARY)]
    run_playbook(playbook, INVENTORY, folder=tmp_path / "lab", secrets=secrets, on_task=events.append)
    told = {one.task: one.commands for one in events if one.status == "ok"}
    (said,) = told["Say something"]
    assert (said.argv[0], said.code, said.output) == ("sh", 3, "out\nerr")
    assert said.elapsed_s > 0
    assert [(one.argv, one.output) for one in told["Say twice"]] == [(("echo", "a"), "a"), (("echo", "b"), "b")]
    assert told["Hide it"] == ()
    assert told["No command"] == ()
