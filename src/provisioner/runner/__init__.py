"""Runs playbooks: the only importer of ansible-runner, and the only place where a secret's value is written down.

The run's folder and the secrets' file are removed after the run; what stays is the plain output, in ``logs/``.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from provisioner.models.sources import TOKEN_NAMES
from provisioner.module_server.handing import NOTES, Served, served
from provisioner.runner.events import HIDDEN, NO_REASON, TaskEvent, short_words, task_event
from provisioner.runner.plays import PLAY_FOR_EACH_SERVICE, PROVES_LATER, with_hosts
from provisioner.values import limits, paths
from provisioner.values.errors import PlaybookError
from provisioner.values.masking import masked
from provisioner.values.state import Secret
from provisioner.values.work_folders import own_folder, prune

__all__ = [
    "HIDDEN",
    "NO_REASON",
    "PlaybookResult",
    "TaskEvent",
    "ansible_environment",
    "ansible_version",
    "run_playbook",
    "task_event",
]
KEPT_LOGS = 20
SECRETS_MEMORY = Path("/dev/shm")  # noqa: S108  # tmpfs on every Linux; the folder made in it is private
CANCEL_POLL_S = 1
GRACE_S = 10.0
"""So long Ansible has to end with its workers, before it is killed without them."""
PID_FILE = "ansible-playbook.pid"
CONFIGURATIONS = {"artifacts.yml": "[defaults]\ninternal_poll_interval = 0.02\n"}
"""What Ansible is told by a file, by the playbook, as nothing else can tell it.

Builds take minutes. By default Ansible looks a thousand times a second whether one has ended, for which it takes up
to a third of a core that the compilers want.
"""


@dataclass(frozen=True, slots=True)
class PlaybookResult:
    """How a run ended: the failed tasks, and the hosts that something was changed on.

    ``finished``: Ansible came to its own end, which its statistics are the last word of; it was not killed before.
    """

    returncode: int
    failures: tuple[TaskEvent, ...] = ()
    changed: Mapping[str, int] = field(default_factory=dict)
    log: Path | None = None
    finished: bool = True
    served: Served = field(default_factory=Served)
    """What ran in the containers' module servers, which run on until somebody stops them."""

    def without(self, task: str) -> PlaybookResult:
        """Return the same without the failures of a task."""
        return replace(self, failures=tuple(event for event in self.failures if event.task != task))

    def raise_for_failure(self, doing: str) -> PlaybookResult:
        """Itself when all went well; ``PlaybookError`` ("Unable to <doing>") with every failed task's words, else."""
        if self.returncode == 0 and not self.failures and self.finished:
            return self
        lines = [f"{event.host}: {event.role} : {event.task}: {event.message}" for event in self.failures]
        words = "\n".join(lines)
        raise PlaybookError(
            f"Unable to {doing}",
            details=words or f"ansible-playbook ended with {self.returncode}" + _tail(self.log),
            resolution=f"The whole output is in {self.log}." if self.log else "",
        )


def run_playbook(
    playbook: str,
    inventory: str,
    *,
    folder: Path,
    secrets: Sequence[Secret] = (),
    on_task: Callable[[TaskEvent], None] = lambda _event: None,
) -> PlaybookResult:
    """Run ``playbook`` (a name in ``playbooks/``) on the inventory (YAML); ``folder`` is the lab's ``.provision/``.

    Interruptible: a signal ends Ansible, then raises.
    """
    import ansible_runner

    failures: list[TaskEvent] = []
    changed: dict[str, int] = {}
    ends: list[str] = []

    def handle(event: dict[str, Any]) -> bool:
        if event.get("event") == "playbook_on_stats":  # a task with no_log hides even whether it changed something
            changed.update(event["event_data"]["changed"])
            ends.append(str(event["event"]))
        task = task_event(event)
        if task is not None:
            task = _without_secrets(task, secrets)
            if task.status in {"failed", "unreachable"}:
                failures.append(task)
            on_task(task)
        return False  # nothing of the event is written to disk

    with _run_folder(folder) as private, _secrets_file(secrets) as secrets_file, _interruptible() as is_interrupted:
        # One of ours in any case: the user's own configuration is for the user's own plays.
        (private / "ansible.cfg").write_text(CONFIGURATIONS.get(playbook, ""), encoding="ascii")
        (private / "inventory").mkdir()
        (private / "inventory" / "hosts.yml").write_text(inventory, encoding="utf-8")
        ended = ansible_runner.run(
            private_data_dir=str(private),
            playbook=str(_with_hosts(playbook, inventory, private)),
            inventory=str(private / "inventory" / "hosts.yml"),
            envvars=_ended_with_us(ansible_environment(secrets_file), private)
            | {"ANSIBLE_CONFIG": str(private / "ansible.cfg"), NOTES: str(private)},
            settings={"pexpect_timeout": CANCEL_POLL_S},
            suppress_env_files=True,
            quiet=True,
            event_handler=handle,
            cancel_callback=_ended_first(is_interrupted, private / PID_FILE),
        )
        log = _keep_log(private, folder, Path(playbook).stem, secrets)
        by_servers = served(private)
    return PlaybookResult(ended.rc, tuple(failures), changed, log, finished=bool(ends), served=by_servers)


def _without_secrets(task: TaskEvent, secrets: Sequence[Secret]) -> TaskEvent:
    """The same with stars for each secret: a program may repeat what it was given, and a model what it was asked."""
    came = short_words(masked(task.came, secrets))
    return replace(task, message=masked(task.message, secrets), came=came)


def ansible_environment(secrets_file: Path | None = None) -> dict[str, str]:
    """The environment in which Ansible finds our roles and plugins; no secret is in it, not even the caller's."""
    plugins = paths.plugins()
    environment = {
        # ansible-runner writes the environment down: the caller's own secrets must not be in it
        **{name: "" for name in os.environ if name.startswith("PROVISION_SECRET_") or name in TOKEN_NAMES},
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
        "PYTHONPATH": os.pathsep.join([str(paths.PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "ANSIBLE_ROLES_PATH": str(paths.roles()),
        "ANSIBLE_LIBRARY": str(plugins / "modules"),
        "ANSIBLE_CONNECTION_PLUGINS": str(plugins / "connection"),
        "ANSIBLE_LOOKUP_PLUGINS": str(plugins / "lookup"),
        "ANSIBLE_CALLBACK_PLUGINS": str(plugins / "callback"),
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_FORKS": "10",
        "ANSIBLE_GATHERING": "explicit",
        "ANSIBLE_RETRY_FILES_ENABLED": "0",
        "ANSIBLE_TASK_TIMEOUT": str(round(limits.LONGEST_S)),
        "ANSIBLE_NOCOWS": "1",
        "ANSIBLE_FORCE_COLOR": "0",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_LOCALHOST_WARNING": "0",
    }
    if secrets_file is not None:
        environment["PROVISION_SECRETS_FILE"] = str(secrets_file)
    return environment


def _with_hosts(playbook: str, inventory: str, private: Path) -> Path:
    """The playbook, where it has one for each service without the plays that have no hosts."""
    whole = paths.playbooks() / playbook
    if playbook not in PLAY_FOR_EACH_SERVICE:
        return whole
    shorter = private / playbook
    text = with_hosts(whole.read_text(encoding="utf-8"), inventory, frozenset(_proved_later()))
    shorter.write_text(text, encoding="utf-8")
    return shorter


def _proved_later() -> Iterator[str]:
    """Yield the roles that leave their proof to a later play where they are told so."""
    for page in paths.roles().glob("*/tasks/main.yml"):
        if PROVES_LATER in page.read_text(encoding="utf-8"):
            yield page.parents[1].name


def _ended_with_us(environment: dict[str, str], private: Path) -> dict[str, str]:
    """The environment in which ``ansible-playbook`` is ended with its workers when this process is killed.

    ansible-runner has it ignore the end of its terminal, and without one it may wait for its own output for ever.
    Its number is in ``PID_FILE`` of the folder.
    """
    setpriv = shutil.which("setpriv")  # of util-linux; where there is none, a killed run leaves Ansible to itself
    bound = f"{setpriv} --pdeathsig TERM " if setpriv else ""
    launcher = private / "bin" / "ansible-playbook"
    launcher.parent.mkdir()
    path = shlex.quote(environment["PATH"])
    number = shlex.quote(str(private / PID_FILE))
    words = f'#!/bin/sh\necho $$ >{number}\nPATH={path} exec {bound}ansible-playbook "$@"\n'
    launcher.write_text(words, encoding="utf-8")
    launcher.chmod(0o700)
    return environment | {"PATH": f"{launcher.parent}:{environment['PATH']}"}


def _ended_first(is_interrupted: Callable[[], bool], pid_file: Path) -> Callable[[], bool]:
    """Whether ansible-runner is to kill Ansible: once interrupted, it is told to end and has ``GRACE_S`` for that.

    A kill reaches the process group alone, and Ansible's workers have left it: they would go on with their tasks.
    """
    deadline = 0.0

    def is_due() -> bool:
        nonlocal deadline
        if is_interrupted() and not deadline:
            deadline = time.monotonic() + GRACE_S
            number = pid_file.read_text(encoding="ascii").strip() if pid_file.exists() else ""
            if number:
                with suppress(ProcessLookupError):  # it has just ended by itself
                    os.kill(int(number), signal.SIGTERM)
        return bool(deadline) and time.monotonic() > deadline

    return is_due


@cache
def ansible_version() -> str:
    """The version of ansible-core that playbooks are run by."""
    from importlib.metadata import version

    return version("ansible-core")


def _tail(log: Path | None, lines: int = 15) -> str:
    if log is None:
        return ""
    return ":\n" + "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


@contextmanager
def _run_folder(folder: Path) -> Iterator[Path]:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with own_folder(folder, "run") as private:
        yield private


@contextmanager
def _secrets_file(secrets: Sequence[Secret]) -> Iterator[Path | None]:
    if not secrets:
        yield None
        return
    with own_folder(SECRETS_MEMORY, "provision") as private:
        file = private / "secrets.json"
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
            json.dump({secret.key: secret.reveal() for secret in secrets}, stream)
        yield file


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """A signal is remembered, so that Ansible is ended with its workers; it is raised afterwards."""
    seen = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield seen.is_set
        return
    before = {
        number: signal.signal(number, lambda _number, _frame: seen.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield seen.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if seen.is_set():
        raise KeyboardInterrupt


def _keep_log(private: Path, folder: Path, name: str, secrets: Sequence[Secret]) -> Path | None:
    written = sorted((private / "artifacts").glob("*/stdout"))
    if not written:
        return None
    logs = folder / "logs"
    logs.mkdir(mode=0o700, exist_ok=True)
    target = logs / f"{private.name.removeprefix('run-')}-{name}.log"
    text = written[0].read_text(encoding="utf-8", errors="replace")
    target.touch(mode=0o600)
    target.write_text(masked(text, secrets), encoding="utf-8")
    prune(logs.glob("*.log"), KEPT_LOGS)
    return target
