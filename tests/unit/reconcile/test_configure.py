"""``configure``: done is what its own plays have brought to their end, by what Ansible said of each container."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provisioner.hosts.fake import Container, FakeProvider
from provisioner.inside.module_server.handing import Served, stop_command
from provisioner.reconcile.configure import Configured, configure
from provisioner.reconcile.runner import GO_ON, HIDDEN, PlaybookResult, TaskEvent, run_playbook
from provisioner.values.errors import PlaybookError, ProviderError, VerificationError
from provisioner.values.events import ApplyComplete, ApplyErrored, Diagnostic, Event
from provisioner.values.state import Execution, Instance, Service, Status

BASE = Service("base", "voice", "base", {})
VOICE = Instance("voice", "box", "lab", "debian/12", services=(Service("kokoro", "voice", "engine", {}),))
GATEWAY = Instance("gateway", "box", "lab", "debian/12", services=(Service("litellm", "gateway", "gateway", {}),))


class Here(FakeProvider):
    """A host whose containers are this machine, for Ansible."""

    def connection_variables(self, name: str) -> dict[str, str]:
        """No way but Ansible's own."""
        assert name
        return {"ansible_connection": "local"}


def _configure(run: Callable[..., PlaybookResult], *instances: Instance) -> tuple[Configured, dict[str, str]]:
    """How it ended, and by container "done" or why not."""
    events: list[Event] = []
    outcome = configure(instances, {"box": Here("box")}, run_playbook=run, emit=events.append)
    done = {one.target: "done" for one in events if isinstance(one, ApplyComplete)}
    errored = {one.target: one.message for one in events if isinstance(one, ApplyErrored)}
    assert done.keys().isdisjoint(errored)
    return outcome, done | errored


def _said(*events: TaskEvent, code: int = 0, finished: bool = True) -> Callable[..., PlaybookResult]:
    """A run of Ansible that said this."""
    failures = tuple(one for one in events if one.status in {"failed", "unreachable"})

    def run(_playbook: str, _inventory: str, *, on_task: Callable[[TaskEvent], None], **_: Any) -> PlaybookResult:
        for one in events:
            on_task(one)
        return PlaybookResult(code, failures, {}, finished=finished)

    return run


def _event(status: str, host: str, role: str, task: str = "install | Install") -> TaskEvent:
    return TaskEvent(status, host, role, f"{role} : {task}", "no network" if status == "failed" else "")


@pytest.fixture
def broken_voice(tmp_path: Path) -> Callable[..., PlaybookResult]:
    """Ansible itself on a play whose only container fails, before the play of another one."""
    tasks = {"kokoro": "- name: install | Break\n  ansible.builtin.fail: { msg: no network }\n"}
    tasks["litellm"] = "- name: install | Look\n  ansible.builtin.debug: { msg: here }\n"
    for role, text in tasks.items():
        (tmp_path / f"roles/{role}/tasks").mkdir(parents=True)
        (tmp_path / f"roles/{role}/tasks/main.yml").write_text(text, encoding="utf-8")
    plays = [f"- {{ hosts: service_{role}, gather_facts: false, roles: [{role}] }}\n" for role in tasks]
    (tmp_path / "site.yml").write_text("".join(plays), encoding="utf-8")

    def run(
        playbook: str, inventory: str, *, on_task: Callable[[TaskEvent], None], secrets: Sequence[Any]
    ) -> PlaybookResult:
        file = str(tmp_path / playbook)
        return run_playbook(file, inventory, folder=tmp_path / "lab", on_task=on_task, secrets=secrets)

    return run


def test_what_another_ones_failure_kept_from_being_done_is_not_done(
    broken_voice: Callable[..., PlaybookResult],
) -> None:
    outcome, told = _configure(broken_voice, GATEWAY, VOICE)
    assert told["voice"] == "no network"
    assert "voice" in told["gateway"]
    assert "not configured" in told["gateway"]
    assert outcome.failed == {"voice", "gateway"}
    assert outcome.error is not None
    assert "gateway: " in outcome.error.details


def test_what_ran_to_its_end_is_done_though_another_one_failed() -> None:
    run = _said(_event("changed", "voice", "kokoro"), _event("failed", "gateway", "litellm"), code=2)
    outcome, told = _configure(run, VOICE, GATEWAY)
    assert told == {"voice": "done", "gateway": "no network"}
    assert outcome.failed == {"gateway"}


def test_a_role_that_was_skipped_task_by_task_is_done() -> None:
    _, told = _configure(_said(_event("skipped", "voice", "kokoro")), VOICE)
    assert told == {"voice": "done"}


def test_one_of_two_roles_is_not_all() -> None:
    both = Instance("voice", "box", "lab", "debian/12", base=BASE, services=VOICE.services)
    run = _said(_event("ok", "voice", "base"), _event("failed", "gateway", "litellm"), code=2)
    outcome, told = _configure(run, both, GATEWAY)
    assert "kokoro" in told["voice"]
    assert outcome.failed == {"voice", "gateway"}


def test_what_was_made_and_not_proved_as_another_one_failed_is_not_done() -> None:
    waited = TaskEvent("failed", "gateway", "", GO_ON, "voice failed")
    run = _said(_event("changed", "gateway", "litellm"), _event("failed", "voice", "kokoro"), waited, code=2)
    outcome, told = _configure(run, VOICE, GATEWAY)
    assert told == {
        "voice": "no network",
        "gateway": "not proved: Ansible stopped when voice failed, before litellm",
    }
    assert outcome.failed == {"voice", "gateway"}
    assert outcome.error is not None
    assert GO_ON not in outcome.error.details


def test_what_was_made_is_not_done_where_the_proof_before_its_own_failed() -> None:
    made = [TaskEvent("ok", name, "", GO_ON) for name in ("gateway", "voice")]
    configured = [_event("changed", "gateway", "litellm"), _event("changed", "voice", "kokoro")]
    run = _said(*configured, *made, _event("failed", "voice", "kokoro", "verify | Have it speak"), code=2)
    outcome, told = _configure(run, VOICE, GATEWAY)
    assert told["gateway"] == "not proved: Ansible stopped when voice failed, before litellm"
    assert outcome.failed == {"voice", "gateway"}
    proofs = [_event("ok", *one, "verify | Ask it") for one in (("voice", "kokoro"), ("gateway", "litellm"))]
    assert set(_configure(_said(*configured, *made, *proofs), VOICE, GATEWAY)[1].values()) == {"done"}


def test_only_a_start_is_not_an_end() -> None:
    run = _said(_event("start", "voice", "kokoro"), _event("failed", "gateway", "litellm"), code=2)
    outcome, _ = _configure(run, VOICE, GATEWAY)
    assert outcome.failed == {"voice", "gateway"}


@pytest.mark.parametrize("failed", [(), (_event("failed", "gateway", "litellm"),)])
def test_of_a_run_that_was_ended_nothing_is_done(failed: tuple[TaskEvent, ...]) -> None:
    run = _said(_event("ok", "voice", "kokoro"), *failed, code=250, finished=False)
    outcome, told = _configure(run, VOICE, GATEWAY)
    assert outcome.failed == {"voice", "gateway"}
    assert "done" not in told.values()
    assert told.keys() == {"voice", "gateway"}
    assert isinstance(outcome.error, PlaybookError)


def test_a_proof_that_failed_is_a_verification_error_that_names_the_rest() -> None:
    run = _said(_event("failed", "voice", "kokoro", "verify | Have it speak"), code=2)
    outcome, _ = _configure(run, VOICE, GATEWAY)
    assert isinstance(outcome.error, VerificationError)
    assert "gateway: not configured" in outcome.error.details


def test_a_service_that_did_not_start_says_why_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Here("box")
    asked: list[str] = []

    def execute(name: str, command: Sequence[str], **_: Any) -> Execution:
        asked.append(f"{name} {command[-1]}")
        return Execution(0, b"failed\nthe supplied chat template is not supported\n", b"")

    monkeypatch.setattr(host, "execute", execute)
    service = Service("llama_cpp", "voice", "engine", {}, unit="llama-server.service")
    voice = Instance("voice", "box", "lab", "debian/12", services=(service,))

    def error_after(task: str) -> str:
        run = _said(_event("failed", "voice", "llama_cpp", task), code=2)
        outcome = configure([voice], {"box": host}, run_playbook=run, emit=lambda _event: None)
        assert outcome.error is not None
        return outcome.error.details

    assert "  | the supplied chat template is not supported" in error_after("verify | Wait until it is ready")
    assert "  | the supplied chat template is not supported" in error_after("service | Start it")
    assert "  | the supplied chat template is not supported" in error_after("Restart llama-server")
    assert asked == ["voice llama-server.service"] * 3
    assert "journal" not in error_after("install | Unpack")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (Status.STOPPED, "its container is stopped meanwhile, so nothing is known of what the task said"),
        (None, "its container is not there any more, so nothing is known of what the task said"),
        (Status.RUNNING, HIDDEN),
    ],
)
def test_what_was_not_said_because_the_container_stopped_is_not_called_hidden(status: Status | None, said: str) -> None:
    host = Here("box")
    if status is not None:
        host.containers["voice"] = Container(replace(VOICE, status=status))
    silent = TaskEvent("failed", "voice", "kokoro", "kokoro : configure | Install the keys", HIDDEN)
    outcome = configure([VOICE], {"box": host}, run_playbook=_said(silent, code=2), emit=lambda _event: None)
    assert outcome.error is not None
    assert said in outcome.error.details
    assert (HIDDEN in outcome.error.details) == (status is Status.RUNNING)


def test_the_module_servers_of_a_run_are_stopped_and_what_they_ran_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Here("box")
    asked: list[tuple[str, list[str]]] = []

    def execute(name: str, command: Sequence[str], **_: Any) -> Execution:
        asked.append((name, list(command)))
        if name == "gateway":
            raise ProviderError("it is gone")
        return Execution(0, b"", b"")

    monkeypatch.setattr(host, "execute", execute)
    served = Served(3, {"not pipelined": 1}, {"voice": "/usr/bin/python3", "gateway": "/usr/bin/python3"})

    run = _said(_event("ok", "voice", "kokoro"), _event("ok", "gateway", "litellm"))

    def run_served(*arguments: Any, **given: Any) -> PlaybookResult:
        return replace(run(*arguments, **given), served=served)

    events: list[Event] = []
    configure([VOICE, GATEWAY], {"box": host}, run_playbook=run_served, emit=events.append)
    assert asked == [(name, stop_command("/usr/bin/python3")) for name in ("voice", "gateway")]
    details = [event.message for event in events if isinstance(event, Diagnostic) and event.severity == "detail"]
    assert details == [
        "The module server of gateway was left to end by itself: it is gone",
        "The module server ran 3 modules, 1 went the usual way (not pipelined: 1)",
    ]


def test_a_run_without_module_servers_stops_none_and_says_nothing() -> None:
    host = Here("box")
    events: list[Event] = []
    configure([VOICE], {"box": host}, run_playbook=_said(_event("ok", "voice", "kokoro")), emit=events.append)
    assert not [event for event in events if isinstance(event, Diagnostic)]
