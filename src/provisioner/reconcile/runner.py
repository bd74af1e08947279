"""Runs playbooks: the only importer of ansible-runner, and the only place where a secret's value is written down.

The run's folder and the secrets' file are removed after the run; what stays is the plain output, in ``logs/``.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from provisioner.inside.module_server.handing import NOTES, Served, served
from provisioner.lab.cards import one_by_one
from provisioner.models.sources import TOKEN_NAMES
from provisioner.reconcile.inventory import NEW
from provisioner.values import limits, paths
from provisioner.values.declared import masked
from provisioner.values.errors import PlaybookError
from provisioner.values.plain_data import yaml_value
from provisioner.values.state import Secret
from provisioner.values.work_folders import own_folder, prune

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
            playbook=str(_file_with_hosts(playbook, inventory, private)),
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


def _file_with_hosts(playbook: str, inventory: str, private: Path) -> Path:
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


# Ansible's events as our own values. Pure; the output of a task that uses a secret is never in them.

LAST_WORDS = 3
HIDDEN = "the task uses a secret, so what it said is hidden"
NO_REASON = "no reason was given"
NO_PLACE = "No usable temporary directory"
"""Python's words where no file can be written in /tmp, /var/tmp, /usr/tmp and the folder that it is in."""
NOTHING_WRITTEN = "Nothing can be written there: the disk is full, has reached its limit, or is read-only"
LARGEST_COUNT = 2**63
DEEPEST = 3
"""Results within results: a loop has items, and no item has items of its own."""
NOTHING_SAID = "All assertions passed"
"""What ``ansible.builtin.assert`` says of itself where its task has no ``success_msg``."""
MOST_SAID, LONGEST_SAID = 9, 160
"""Lines of what a judging task says came, and characters of each: answers are of models and of other programs."""


@dataclass(frozen=True, slots=True)
class RunCommand:
    """One command that a task ran: its exit code, what it wrote (stdout, then stderr), and how long it took."""

    argv: tuple[str, ...]
    code: int | None
    output: str = ""
    elapsed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """What Ansible says of a task: ``status`` is start, ok, changed, failed, unreachable, skipped or retry.

    ``facts`` are what a module of ours measured for the controller (``provision_facts`` in its result), by their names.
    ``commands``: what a task of ``ansible.builtin.command`` ran, one for each item of its loop.
    ``came``: what a task of ``ansible.builtin.assert`` that holds says came (its ``success_msg``), a part on each line,
    as the answers had it: ``short_words`` makes it fit to be shown.
    """

    status: str
    host: str
    role: str
    task: str
    message: str = ""
    elapsed_s: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)
    commands: tuple[RunCommand, ...] = ()
    came: str = ""


STATUSES = {
    "runner_on_start": "start",
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
    "runner_on_skipped": "skipped",
    "runner_retry": "retry",
}


def task_event(event: Mapping[str, Any]) -> TaskEvent | None:
    """An ansible-runner event as our own value; None for those that are not about a task on a host."""
    status = STATUSES.get(str(event.get("event")))
    data = _mapping(event.get("event_data"))
    if status is None:
        return None
    if status == "failed" and data.get("ignore_errors"):
        return None
    result = _mapping(data.get("res"))
    if status == "ok" and result.get("changed"):
        status = "changed"
    host = data.get("host") or data.get("remote_addr") or "localhost"
    return TaskEvent(
        status=status,
        host=str(host),
        role=str(data.get("role") or ""),
        task=str(data.get("task") or ""),
        message=_message(status, result),
        elapsed_s=_duration(data.get("duration")),
        facts=_facts(result),
        commands=_commands(status, result),
        came=_came(status, str(data.get("task_action") or ""), result),
    )


def short_words(text: str) -> str:
    """At most ``MOST_SAID`` lines of this, each of at most ``LONGEST_SAID`` characters that can all be printed.

    Secrets are to be masked before: half of one would not be found any more.
    """
    lines = list(filter(None, map(_short_line, text.split("\n"))))
    left = len(lines) - MOST_SAID
    if left > 0:
        lines[MOST_SAID:] = [f"and {left} more"]
    return "\n".join(lines)


def _short_line(text: str) -> str:
    # A space takes the place of what cannot be printed, so that nothing is joined that stood apart.
    printable = "".join(character if character.isprintable() else " " for character in text)
    line = " ".join(printable.split())
    return line if len(line) <= LONGEST_SAID else f"{line[: LONGEST_SAID - 1]}…"


def _mapping(value: Any) -> Mapping[str, Any]:
    """The object that a container sent; an empty one where it sent something else."""
    return value if isinstance(value, Mapping) else {}


def _duration(value: Any) -> float:
    """A number of seconds; 0 where a container sent something else."""
    if not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 <= value < LARGEST_COUNT else 0.0


def _facts(result: Mapping[str, Any]) -> dict[str, int]:
    """Counts of our modules (whole numbers below ``LARGEST_COUNT``) by their names; whatever else is there is none."""
    counts: dict[str, int] = {}
    for name, value in _mapping(result.get("provision_facts")).items():
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        if 0 <= value < LARGEST_COUNT:
            counts[str(name)] = value
    return counts


def _items(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The results of a loop's items; none where a container sent something else."""
    results = result.get("results")
    if not isinstance(results, list):
        return []
    return [item for item in results if isinstance(item, Mapping)]


def _is_hidden(result: Mapping[str, Any]) -> bool:
    return bool(result.get("censored") or result.get("_ansible_no_log"))


def _came(status: str, action: str, result: Mapping[str, Any]) -> str:
    """What a judging task that holds says came, of a loop what each item says; nothing of any other task."""
    if status not in {"ok", "changed"} or action.rpartition(".")[2] != "assert" or _is_hidden(result):
        return ""
    texts: list[str] = []
    for item in _items(result) or [result]:
        said = item.get("msg")
        if _is_hidden(item) or item.get("skipped") or said == NOTHING_SAID:
            continue
        parts = said if isinstance(said, list) else [said]
        texts += [part for part in parts if isinstance(part, str)]
    return "\n".join(texts)


def _commands(status: str, result: Mapping[str, Any]) -> tuple[RunCommand, ...]:
    """The commands that a task ran; none of an attempt that is repeated."""
    if status == "retry" or _is_hidden(result):
        return ()
    results = _items(result) or [result]
    return tuple(_command(item) for item in results if _has_run(item))


def _has_run(result: Mapping[str, Any]) -> bool:
    # Other modules have a cmd, too (a string, in a form of their own); only this one also has both of its times.
    if _is_hidden(result) or not isinstance(result.get("cmd"), list):
        return False
    return {"start", "end"} <= result.keys()


def _command(result: Mapping[str, Any]) -> RunCommand:
    code = result.get("rc")
    streams = [result.get("stdout"), result.get("stderr")]
    return RunCommand(
        argv=tuple(map(str, result["cmd"])),
        code=code if isinstance(code, int) else None,
        output="\n".join(str(text) for text in streams if text),
        elapsed_s=_seconds(str(result.get("delta") or "")),
    )


def _seconds(delta: str) -> float:
    """The module's ``0:00:01.250000`` in seconds; no command of ours may take days."""
    clock = re.fullmatch(r"(\d{1,6}):(\d{1,2}):(\d{1,2}(?:\.\d{1,9})?)", delta, re.ASCII)
    if clock is None:
        return 0.0
    hours, minutes, seconds = clock.groups()
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def _message(status: str, result: Mapping[str, Any]) -> str:
    """Why a task failed, or what one says that is called again to go on; nothing for all others."""
    is_continued = status == "retry" and not result.get("failed")
    if is_continued:
        return str(result.get("msg") or "")
    if status in {"failed", "unreachable"}:
        return _failure_message(result)
    return ""


def _failure_message(result: Mapping[str, Any], level: int = 0) -> str:
    if _is_hidden(result):
        return HIDDEN
    # A module that could not even start says why here only.
    module_said = str(result.get("module_stderr") or "").strip()
    if NO_PLACE in module_said:
        return NOTHING_WRITTEN
    texts = [str(result.get(key) or "").strip() for key in ("msg", "stderr", "stdout")]
    texts.append("\n".join(module_said.splitlines()[-LAST_WORDS:]))
    if level < DEEPEST:
        failed_items = [item for item in _items(result) if item.get("failed")]
        texts += [_failure_message(item, level + 1) for item in failed_items]
    different_texts = dict.fromkeys(filter(None, texts))
    return "\n".join(different_texts) or NO_REASON


# The plays of a playbook that have something to do: Ansible reads the roles of all that it is given before it begins.

PLAY_FOR_EACH_SERVICE = frozenset({"site.yml", "verify.yml"})
"""Playbooks that say nothing but which group runs which role, so that it does not matter where they lie."""

BEFORE_ENGINES = "service_gpu_userspace"
"""The play without which an engine finds no card."""
MAKE = "Make what is new"
GO_ON = "Go on where all that is new was made"
"""Fails in each container where something was not, so that no gateway is changed or proved without its engine."""
FIRST = ("containers", BEFORE_ENGINES)
"""The plays that come before those of services that may be made at once."""
PROVES_LATER = "provision_proves_later"
"""The variable by which a role leaves its proof to a later play."""


def with_hosts(playbook: str, inventory: str, proved_later: Collection[str] = ()) -> str:
    """The playbook's plays whose group is in the inventory, in their order; all of them where none is.

    Containers that take turns are gone through one after the other. Of the others, those that are new are made all at
    once, and then proved in the playbook's order; ``proved_later`` are the roles that can be made so.

    Both are YAML; in the inventory the groups stand below ``all.children``, as ``render_inventory`` makes it.
    """
    groups = _groups(inventory)
    plays = yaml_value(playbook)
    kept = one_by_one([play for play in plays if play["hosts"] in groups] or plays, groups)
    other = [play for play in kept if play["hosts"] not in FIRST and not set(play.get("roles", ())) <= {*proved_later}]
    new = groups.get(NEW, set()).difference(*(groups[play["hosts"]] for play in other if play["hosts"] in groups))
    if len(new) > 1:
        kept = list(side_by_side(kept, groups, new))
    return yaml.safe_dump(kept, sort_keys=False, allow_unicode=True)


def side_by_side(
    plays: Sequence[dict[str, Any]], groups: Mapping[str, set[str]], new: set[str]
) -> Iterator[dict[str, Any]]:
    """Return the plays, changed so that each new container goes its own way until all of them are to be proved.

    Whoever writes a handler keeps in mind that of several roles that include a third one the last one's variables are
    those of its handlers, in all containers of a play.
    """
    services = [play for play in plays if play["hosts"] not in FIRST]
    yield from (play for play in plays if play not in services)
    hosts = ":".join(sorted(new))
    own_way = []
    for play in services:
        task = _include(play["name"], play["roles"][0], "main")
        own_way.append(task | {"when": f"inventory_hostname in groups.{play['hosts']}"})
    make = {"name": MAKE, "hosts": hosts, "gather_facts": False, "strategy": "free", "vars": {PROVES_LATER: True}}
    yield make | {"tasks": own_way}
    missing = f"groups.{NEW} | difference(ansible_play_hosts)"
    check = {"that": f"{missing} | length == 0", "fail_msg": f"{{{{ {missing} | join(', ') }}}} failed", "quiet": True}
    go_on = {"name": GO_ON, "ansible.builtin.assert": check}
    yield {"name": GO_ON, "hosts": "containers", "gather_facts": False, "tasks": [go_on]}
    for play in services:
        made = sorted(groups[play["hosts"]] & new)
        if groups[play["hosts"]] - new:
            yield play | {"hosts": ":!".join([play["hosts"], *made])}
        if made:
            proof = _include("Prove that it works", play["roles"][0], "verify")
            name = play["name"].replace("Configure", "Verify")
            yield {"name": name, "hosts": ":".join(made), "gather_facts": False, "tasks": [proof]}


def _include(name: str, role: str, tasks: str) -> dict[str, Any]:
    return {"name": name, "ansible.builtin.include_role": {"name": role, "tasks_from": tasks}}


def _groups(inventory: str) -> dict[str, set[str]]:
    """The hosts of each group."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    node = yaml.compose(inventory, loader)  # nodes alone: its values have tags of Ansible's
    for name in ("all", "children"):
        node = _entries(node).get(name)
    return {name: set(_entries(_entries(group).get("hosts"))) for name, group in _entries(node).items()}


def _entries(node: yaml.Node | None) -> dict[str, yaml.Node]:
    return {key.value: value for key, value in node.value} if isinstance(node, yaml.MappingNode) else {}
