"""Runs a runbook: one repair of a cluster at a time, and every step is written down before the next one begins."""

from __future__ import annotations

import os
import selectors
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Any

from provisioner.cluster.facts import ClusterFacts, Diagnosis
from provisioner.cluster.gather import Reach
from provisioner.cluster.page import record_html
from provisioner.cluster.record import CommandRecord, Record, Run, StepRecord, StepStatus, create_run, now, write_record
from provisioner.cluster.runbooks import known_runbook
from provisioner.hosts.proxmox.ssh import CONNECT_TIMEOUT_S, Shell, ssh_environment, unreachable_error
from provisioner.reconcile.inventory import render_nodes
from provisioner.values import paths
from provisioner.values.errors import LockedError, ProviderError
from provisioner.values.events import ApplyComplete, ApplyErrored, ApplyProgress, ApplyStart, Event

if TYPE_CHECKING:
    from provisioner.reconcile.runner import PlaybookResult, TaskEvent

REPORT = "report.html"
NODE_PYTHON = "/usr/bin/python3"
NOTHING = "ansible-playbook ended before it did anything"
OUTPUT_LIMIT = 20_000
"""Characters of a command's output that are kept: its last ones."""
LOCK = "/run/lock/provisioner-repair"
HEARTBEAT_S = 20.0
ANSWER_S = 60.0
ANSWER_BYTES = 1 << 16
"""The node says in a line or two whose the lock is; so long it has for that, and no more is read of it."""
SILENCE_S = 90
"""The node lets go when it has heard nothing for so long: our machine may be gone without its knowing."""
MINE, BUSY = "turn:mine", "turn:busy"
_HOLD = f"""
exec 9>>"$1"
if ! flock -n 9; then echo {BUSY}; exec cat "$1"; fi
printf '%s\\n' "$2" >"$1"
echo {MINE}
while read -r -t "$3" _; do :; done
"""


@dataclass(frozen=True, slots=True)
class Effects:
    """The effects of a repair: ``run_playbook`` as ``runner.run_playbook``; ``emit`` says what goes on."""

    run_playbook: Callable[..., PlaybookResult]
    emit: Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class RepairTarget:
    """A node that is repaired, its cluster, and the node that does it with the shell on that."""

    cluster: str
    node: str
    lead: str
    shell: Shell


def begin_run(runbook: str, target: RepairTarget, before: tuple[Diagnosis, ...] = ()) -> Run:
    """The run of a runbook, its steps not reached."""
    steps = tuple(StepRecord(step.id, step.does, StepStatus.NOT_REACHED) for step in known_runbook(runbook).steps)
    return create_run(Record(runbook, target.cluster, target.node, target.lead, now(), before=before, steps=steps))


def run_runbook(run: Run, target: RepairTarget, plan: Mapping[str, Any], effects: Effects) -> Run:
    """Run its playbook on the lead and end its record; ``ProviderError`` with the failed step's words.

    What was done stays written down either way, also as a page.
    """
    name, started = run.record.runbook, time.monotonic()
    effects.emit(ApplyStart(target.node, name))
    job = Job({"lead": {target.lead: target.shell}}, {"node": target.node, **plan})
    run = run_steps(job, run, effects.run_playbook, lambda step: effects.emit(ApplyProgress(target.node, step.id)))
    run = finish_run(run)
    if run.record.error:
        effects.emit(ApplyErrored(target.node, name, run.record.error))
        raise ProviderError(
            f"Unable to finish {name} for {target.node}",
            details=run.record.error,
            resolution=f"What was done is in {run.folder / REPORT}. The same command goes on from there.",
        )
    effects.emit(ApplyComplete(target.node, name, time.monotonic() - started))
    return run


def finish_run(run: Run, after: tuple[Diagnosis, ...] = ()) -> Run:
    """The run with its end written down, and its page beside it (0600)."""
    run = write_record(run, replace(run.record, ended=now(), after=after or run.record.after))
    page = os.open(run.folder / REPORT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(page, "w", encoding="utf-8") as file:
        file.write(record_html(run.record))
    return run


@dataclass(frozen=True, slots=True)
class Job:
    """A repair that was decided on: ``groups`` (lead, node, others) → the nodes' names → how they are reached.

    ``plan`` is what the playbook gets as ``repair_plan``: what was proved and decided, of JSON's types, no secret.
    """

    groups: Mapping[str, Mapping[str, Shell]]
    plan: Mapping[str, Any]


def run_steps(
    job: Job,
    run: Run,
    run_playbook: Callable[..., PlaybookResult],
    on_step: Callable[[StepRecord], None] = lambda _step: None,
) -> Run:
    """Run ``playbooks/repair/<runbook>.yml`` and give the run with what was done, ``error`` said where it failed.

    The record is on disk with every step that begins and every command that ended; it has no end yet. A signal leaves
    it as it is then and passes through. ``on_step`` hears of each step that begins.
    """
    # a run that resumes goes through all steps again, and keeps what their commands said
    steps = tuple(replace(step, status=StepStatus.NOT_REACHED, message="") for step in run.record.steps)
    recorder = Recorder(replace(run.record, steps=steps, ended="", error="", after=()))

    def take(event: TaskEvent) -> None:
        nonlocal run
        begun = recorder.take(event)
        run = write_record(run, recorder.record)
        if begun is not None:
            on_step(begun)

    for nodes in job.groups.values():
        for shell in nodes.values():
            shell.open()  # one connection for all tasks: while pmxcfs is stopped, sshd finds no key to let us in
    result = run_playbook(f"repair/{run.record.runbook}.yml", inventory(job), folder=run.folder, on_task=take)
    error = ""
    if result.returncode or result.failures:
        lines = [f"{failure.host}: {failure.task}: {failure.message}" for failure in result.failures]
        error = "\n".join(lines) or NOTHING
    return write_record(run, recorder.end(error))


def inventory(job: Job) -> str:
    """The Ansible inventory of a job: YAML text; whatever a node said in it is data, never a template."""
    groups = dict[str, dict[str, dict[str, Any]]]()
    for group, nodes in job.groups.items():
        variables = {name: {**connection(shell), "repair_plan": job.plan} for name, shell in nodes.items()}
        groups[group] = variables
    return render_nodes(groups, paths.inventory_templates())


def connection(shell: Shell) -> dict[str, str]:
    """The variables by which Ansible reaches the node as we do: same options, same known hosts, same connection."""
    variables = {
        "ansible_connection": "ssh",
        "ansible_host": shell.destination.host,
        "ansible_ssh_args": shlex.join(shell.options("auto")),
        "ansible_ssh_transfer_method": "piped",
        "ansible_python_interpreter": NODE_PYTHON,
    }
    user, _, _ = shell.destination.login.rpartition("@")
    if user:
        variables["ansible_user"] = user
    return variables


class Recorder:
    """The record of a run that goes on; a task belongs to the step whose id its name begins with ("stop | …")."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._changed: set[str] = set()
        self._skipped: set[str] = set()
        self._ran: set[str] = set()

    def take(self, event: TaskEvent) -> StepRecord | None:
        """Note one event; the step that has just begun with it, or None."""
        step_id = event.task.partition(" | ")[0]
        for step in self.record.steps:
            if step.id == step_id:
                if event.status == "start":
                    return self._begin(step)
                if event.status != "retry":
                    self._note(step, event)
        return None

    def _note(self, step: StepRecord, event: TaskEvent) -> None:
        """Note how a task of the step ended, with its commands."""
        if event.status == "skipped":
            self._skipped.add(step.id)
        else:
            self._ran.add(step.id)
        if event.status == "changed":
            self._changed.add(step.id)
        commands = list(step.commands)
        for command in event.commands:
            output = command.output[-OUTPUT_LIMIT:]
            commands.append(CommandRecord(event.host, command.argv, command.code, output, command.elapsed_s))
        step = replace(step, commands=tuple(commands))
        if event.status in {"failed", "unreachable"}:
            step = replace(step, status=StepStatus.FAILED, message=f"{event.host}: {event.message}")
        self._put(step)

    def end(self, error: str = "") -> Record:
        """The record when Ansible has ended, for the reason ``error`` before its time."""
        if not error:
            self._end_begun_steps()
        self.record = replace(self.record, error=error)
        return self.record

    def _begin(self, step: StepRecord) -> StepRecord | None:
        """Note that the step begins, and with it that all others ended; None where it had begun before."""
        if step.status is StepStatus.BEGUN:
            return None
        self._end_begun_steps()
        begun = replace(step, status=StepStatus.BEGUN, message="")
        self._put(begun)
        self.record = replace(self.record, begun=tuple(dict.fromkeys((*self.record.begun, step.id))))
        return begun

    def _end_begun_steps(self) -> None:
        """Note how steps ended of which no task failed; one whose tasks were all skipped was left out."""
        for step in self.record.steps:
            if step.status is not StepStatus.BEGUN:
                continue
            status = StepStatus.UNCHANGED
            if step.id in self._changed:
                status = StepStatus.DONE
            elif step.id in self._skipped - self._ran:
                status = StepStatus.LEFT_OUT
            self._put(replace(step, status=status))

    def _put(self, step: StepRecord) -> None:
        """Put ``step`` in the place of the step with its id."""
        steps = list(self.record.steps)
        for number, there in enumerate(steps):
            if there.id == step.id:
                steps[number] = step
        self.record = replace(self.record, steps=tuple(steps))


@contextmanager
def cluster_lock(asked: Reach, facts: ClusterFacts, words: str, *, without: str = "") -> Iterator[None]:
    """Hold the lock on every node that has quorum, but not on the one that is repaired (``without``).

    On every one, because whoever asks another node has another lead; two majorities always share a node. An ssh session
    holds it, and it ends with that. ``LockedError`` says who has it on one of them; without any such node there is
    nothing to hold.
    """
    quorate = [node for node in facts.nodes if node.is_quorate and node.name != without]
    with ExitStack() as held:
        for node in sorted(quorate, key=lambda node: node.name):
            held.enter_context(node_lock(asked.of(node, facts).shell, words))
        yield


@contextmanager
def node_lock(shell: Shell, words: str) -> Iterator[None]:
    """Hold the cluster's lock on one node; ``LockedError`` says who has it. ``words``: what others read of us."""
    shell.open()
    hold = shlex.join(["exec", "bash", "-c", _HOLD, "provision", LOCK, words, str(SILENCE_S)])
    process = subprocess.Popen(
        shell.argv(hold, "-T"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=ssh_environment(),
        start_new_session=True,
    )
    assert process.stdin  # noqa: S101 - it is a pipe
    try:
        _require_lock(process.stdout, shell)
        with _heartbeat(process.stdin):
            yield
    finally:
        _release(process)


def _require_lock(said: IO[bytes] | None, shell: Shell) -> None:
    """Return when the lock is ours; whatever else was said is the error."""
    lines = list[str]()
    for line in _lines(said):
        lines.append(line)
        if line == MINE:
            return
    if BUSY in lines:
        raise LockedError(
            "Unable to repair this cluster now: another repair of it goes on",
            details="\n".join(lines[lines.index(BUSY) + 1 :]).strip(),
            resolution="Wait until it has ended. Two repairs at once could cost the cluster its quorum.",
        )
    raise unreachable_error(shell.destination, "\n".join(lines))


def _lines(said: IO[bytes] | None) -> Iterator[str]:
    """The lines as they come, until the end, ``ANSWER_S`` or ``ANSWER_BYTES``."""
    if said is None:
        return
    deadline, rest, size = time.monotonic() + ANSWER_S, b"", 0
    with selectors.DefaultSelector() as selector:
        selector.register(said, selectors.EVENT_READ)
        while size < ANSWER_BYTES and selector.select(max(0.0, deadline - time.monotonic())):
            block = os.read(said.fileno(), ANSWER_BYTES)
            size += len(block)
            *whole, rest = (rest + block).split(b"\n")
            yield from (line.decode(errors="replace").strip() for line in whole)
            if not block:
                break
    if rest:
        yield rest.decode(errors="replace").strip()


@contextmanager
def _heartbeat(pipe: IO[bytes]) -> Iterator[None]:
    """A line now and then, from a thread; a pipe without a reader is no reason to stop what goes on."""
    ended = threading.Event()

    def beat() -> None:
        with suppress(BrokenPipeError):
            while not ended.wait(HEARTBEAT_S):
                pipe.write(b"\n")
                pipe.flush()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(CONNECT_TIMEOUT_S)  # it may hang in a pipe that nobody reads


def _release(process: subprocess.Popen[bytes]) -> None:
    """End the session, and wait until it has ended: the lock is free then. What it says now is of no use."""
    with suppress(BrokenPipeError, subprocess.TimeoutExpired):
        if process.stdin is not None:
            process.stdin.close()
        process.wait(CONNECT_TIMEOUT_S)
    process.kill()
    process.wait(CONNECT_TIMEOUT_S)
    if process.stdout is not None:
        process.stdout.close()
