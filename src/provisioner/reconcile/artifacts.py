"""Artifacts are made once per host: from the cache, else by the role's ``build.yml`` in a throwaway container.

A volume is marked ready last, so that an interrupted build is never mistaken for an artifact. While one is made, its
run holds the volume's lock, and runs of other labs that want the same wait for it.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Protocol, Self

from provisioner.hosts.base import Provider
from provisioner.reconcile import volumes
from provisioner.reconcile.inventory import render_builders
from provisioner.reconcile.lock import HeldError, Lease
from provisioner.reconcile.runner import PlaybookResult, TaskEvent
from provisioner.serving.engine_memory import keep_program
from provisioner.values import paths
from provisioner.values.errors import ProviderError, ProvisionError
from provisioner.values.events import ApplyComplete, ApplyErrored, ApplyProgress, ApplyStart, Diagnostic, Event
from provisioner.values.limits import LONGEST_S
from provisioner.values.plain_data import Foreign
from provisioner.values.state import Artifact, Device, Instance, InstanceKind, Secret, secrets_of

Emit = Callable[[Event], None]
WAIT_S = 1.0
"""How often it is looked whether what another run makes is there."""


class RunPlaybook(Protocol):
    """Runs a playbook of ours on an inventory, as ``runner.run_playbook`` does."""

    def __call__(
        self,
        playbook: str,
        inventory: str,
        *,
        on_task: Callable[[TaskEvent], None],
        secrets: Sequence[Secret] = (),
    ) -> PlaybookResult:
        """The result of the run; a failed task is in it, not raised."""


def ensure_artifacts(
    artifacts: Sequence[Artifact],
    providers: Mapping[str, Provider],
    lab: str,
    *,
    run_playbook: RunPlaybook,
    emit: Emit,
    cache: Path | None = None,
) -> None:
    """Have every artifact on its host, ready to be mounted; what another lab makes at this moment is waited for.

    Raises when one cannot be made: the others that were made are kept, and none is left half made, but for what a
    ``resumable`` one has received, which waits for the next run.
    """
    folder = cache or paths.cache() / "artifacts"
    turns = _Turns(providers, lab, emit)
    missing = list(artifacts)
    while missing:
        try:
            ours = turns.take(missing)
            _make(turns.unmade(ours), turns, run_playbook, folder)
        finally:
            turns.end()
        missing = [artifact for artifact in missing if artifact not in ours]
        if missing:
            time.sleep(WAIT_S)  # between two looks at what another run makes: no host tells when it is there


def _make(artifacts: Sequence[Artifact], turns: _Turns, run_playbook: RunPlaybook, folder: Path) -> None:
    """Import what is in the cache, and build the rest meanwhile."""
    copies: list[tuple[Artifact, Path]] = []
    missing: list[Artifact] = []
    for one in artifacts:
        file = intact_copy(folder, one, turns.providers[one.host]) if one.cacheable else None
        if file is None:
            missing.append(one)
        else:
            copies.append((one, file))
            keep_program(one, file)
    with ThreadPoolExecutor(1) as beside:
        imports = [beside.submit(_import, one, file, turns) for one, file in copies]
        try:
            for at_once in _builds_at_once(missing):
                _Build(at_once, turns, run_playbook, folder).run()
        except BaseException:
            for waiting in imports:
                waiting.cancel()
            raise
    for ended in imports:
        ended.result()


@dataclass
class _Turns:
    """The locks of the volumes that this run makes; none is waited for while others are held."""

    providers: Mapping[str, Provider]
    lab: str
    emit: Emit
    leases: dict[str, Lease] = field(default_factory=dict)
    told: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """What was said while an artifact was waited for, by its builder."""
    began: float = field(default_factory=monotonic)

    def take(self, artifacts: Sequence[Artifact]) -> list[Artifact]:
        """Return the artifacts whose turn is ours now; of the others it is told who makes them."""
        ours = []
        for artifact in artifacts:
            say = partial(self._wait, artifact)
            try:
                lease = volumes.locked(self.providers[artifact.host], self.lab, "build", artifact.volume, say)
            except HeldError as error:
                if monotonic() - self.began > LONGEST_S:
                    raise
                self._wait(artifact, volumes.maker(error.written))
                continue
            self.leases[artifact.builder] = lease
            ours.append(artifact)
        return ours

    def unmade(self, artifacts: Sequence[Artifact]) -> list[Artifact]:
        """Return those that are not there yet; of the others it is told when they were waited for."""
        unmade = []
        ready = {host: self.providers[host].volumes.ready() for host in {one.host for one in artifacts}}
        for artifact in artifacts:
            if artifact.volume not in ready[artifact.host]:
                unmade.append(artifact)
                continue
            self.give_up(artifact)
            if self.told[artifact.builder]:
                self.emit(ApplyComplete(artifact.name, "build", monotonic() - self.began))
        return unmade

    def give_up(self, artifact: Artifact) -> None:
        """Let others have it, who may wait for it; without effect when it was given up before."""
        self.leases[artifact.builder].release()

    def end(self) -> None:
        """Give up all."""
        for lease in self.leases.values():
            lease.release()

    def _wait(self, artifact: Artifact, message: str) -> None:
        """Say once why the artifact is waited for."""
        told = self.told[artifact.builder]
        if not told:
            self.emit(ApplyStart(artifact.name, "build"))
        if message not in told:
            self.emit(ApplyProgress(artifact.name, message))
        told.add(message)


def _builds_at_once(artifacts: Sequence[Artifact]) -> list[list[Artifact]]:
    """Return the artifacts by what may be built at once: builders of one fixed address follow one another."""
    rounds = defaultdict[int, list[Artifact]](list)
    taken = Counter[str]()
    for artifact in artifacts:
        address = artifact.builder_address
        rounds[taken[address]].append(artifact)
        taken[address] += bool(address)
    return list(rounds.values())


def _import(artifact: Artifact, file: Path, turns: _Turns) -> None:
    turns.emit(ApplyStart(artifact.name, "import"))
    started = monotonic()
    try:
        turns.leases[artifact.builder].check()
        remove_left(artifact, turns.providers[artifact.host])
        turns.providers[artifact.host].volumes.import_from(artifact.volume, artifact.digest, file)
    except ProvisionError as error:
        turns.emit(ApplyErrored(artifact.name, "import", error.message))
        raise
    turns.give_up(artifact)
    turns.emit(ApplyComplete(artifact.name, "import", monotonic() - started))


@dataclass
class _Build:
    """One build of several artifacts at once, a throwaway container each."""

    artifacts: Sequence[Artifact]
    turns: _Turns
    run_playbook: RunPlaybook
    folder: Path
    started: float = field(default_factory=monotonic)
    made: set[str] = field(default_factory=set)
    opened: set[str] = field(default_factory=set)
    """Builders whose volume is ours to remove. (Two distributions' builds of one program bear one name.)"""
    failures: dict[str, ProvisionError] = field(default_factory=dict)
    """What single builders failed with, beside what Ansible tells; the others go on."""

    def run(self) -> None:
        """Build all; whatever happens, no builder and no half-made volume stays that the next run has no use for."""
        try:
            result = self._built(self._ready_builders())
        finally:
            self._discard(self.artifacts)
        for error in self.failures.values():
            raise error
        missing = [one.name for one in self.artifacts if one.builder not in self.made]
        result.raise_for_failure(f"build {', '.join(missing)}")

    def _ready_builders(self) -> list[Artifact]:
        """Make a builder for each artifact, and return those whose builder has come up."""
        for one in self.artifacts:
            self.emit(ApplyStart(one.name, "build"))
        with ThreadPoolExecutor(len(self.artifacts)) as pool:
            opening = [pool.submit(self._open, one) for one in self.artifacts]
        for opened in opening:
            opened.result()
        self._discard([one for one in self.artifacts if one.builder in self.failures])
        return [one for one in self.artifacts if one.builder not in self.failures]

    def _built(self, artifacts: Sequence[Artifact]) -> PlaybookResult:
        if not artifacts:
            return PlaybookResult(0)
        connections = {one.builder: self._provider(one).connection_variables(one.builder) for one in artifacts}
        inventory = render_builders(artifacts, connections, paths.inventory_templates())
        secrets = tuple(secrets_of([one.variables for one in artifacts]).values())
        try:
            with Watching(artifacts, self.turns.providers, self.emit) as watching:
                on_task = partial(self._on_task, watching)
                result = self.run_playbook("artifacts.yml", inventory, on_task=on_task, secrets=secrets)
        except ProvisionError as error:
            for one in artifacts:
                self.emit(ApplyErrored(one.name, "build", error.message))
            raise
        failed = {event.host: event.message for event in result.failures}
        for one in artifacts:
            if one.builder in failed:
                self.emit(ApplyErrored(one.name, "build", failed[one.builder]))
            elif result.finished and (result.returncode == 0 or failed):
                self._finish(one)
        return result

    @contextmanager
    def _own_failure(self, artifact: Artifact) -> Iterator[None]:
        """Note and tell what fails for this artifact alone."""
        try:
            yield
        except ProvisionError as error:
            self.emit(ApplyErrored(artifact.name, "build", error.message))
            self.failures[artifact.builder] = error

    def _open(self, artifact: Artifact) -> None:
        provider, builder = self._provider(artifact), self._builder(artifact)
        with self._own_failure(artifact):
            is_open = artifact.resumable and reopened(artifact, builder, provider, self._say(artifact))
            if is_open:
                self.opened.add(artifact.builder)
                return
            remove_left(artifact, provider)
            provider.volumes.create(artifact.volume, artifact.digest)
            self.opened.add(artifact.builder)
            provider.create(builder)
            provider.start(builder)
            provider.wait_until_ready(builder)

    def _finish(self, artifact: Artifact) -> None:
        provider = self._provider(artifact)
        with self._own_failure(artifact):
            provider.stop(self._builder(artifact))
            self.turns.leases[artifact.builder].check()
            provider.volumes.mark_ready(artifact.volume)
            self.made.add(artifact.builder)
            self.turns.give_up(artifact)
            if artifact.cacheable:
                self.emit(ApplyProgress(artifact.name, "keep a copy in the cache"))
                keep_program(artifact, remember(self.folder, artifact, provider))
            self.emit(ApplyComplete(artifact.name, "build", monotonic() - self.started))

    def _discard(self, artifacts: Sequence[Artifact]) -> None:
        for one in artifacts:
            if one.builder not in self.opened or self.turns.leases[one.builder].is_lost:
                continue
            self.opened.remove(one.builder)
            provider, builder = self._provider(one), self._builder(one)
            is_made = one.builder in self.made
            if one.resumable and not is_made and kept(one, builder, provider, self._tell):
                continue
            provider.delete(builder)
            if not is_made:
                provider.volumes.delete(one.volume)
            self.turns.give_up(one)

    def emit(self, event: Event) -> None:
        """Tell what happens."""
        self.turns.emit(event)

    def _tell(self, message: str) -> None:
        self.emit(Diagnostic("note", message))

    def _say(self, artifact: Artifact) -> Say:
        return lambda message: self.emit(ApplyProgress(artifact.name, message))

    def _on_task(self, watching: Watching, event: TaskEvent) -> None:
        names = {one.builder: one.name for one in self.artifacts}
        name = names.get(event.host, event.host)
        if event.status != "retry":
            task = event.task if event.status == "start" else ""
            watching.go_on(event.host, task)
            self.emit(ApplyProgress(name, task))
        elif event.message:  # a try that failed says nothing: its task goes on as it was told
            self.emit(ApplyProgress(name, event.message, goes_on=True))

    def _provider(self, artifact: Artifact) -> Provider:
        return self.turns.providers[artifact.host]

    def _builder(self, artifact: Artifact) -> Instance:
        mount = {"volume": artifact.volume, "path": artifact.path, "readonly": "false"}
        devices = (Device("artifact", "volume", mount),)
        return Instance(
            artifact.builder,
            artifact.host,
            self.turns.lab,
            artifact.image,
            devices=devices,
            kind=InstanceKind.BUILDER,
            settings=artifact.builder_settings,
        )


# The cache, with the controller's copies of built artifacts: one file per volume and its sha256 beside it, checked at
# each reuse.


def cached_file(folder: Path, artifact: Artifact, form: str) -> Path:
    """Where the artifact's copy of that form is, or would be."""
    return folder / f"{artifact.volume}.{form}"


def intact_copy(folder: Path, artifact: Artifact, provider: Provider) -> Path | None:
    """A copy that the provider can import, or None."""
    files = (cached_file(folder, artifact, form) for form in provider.volumes.forms)
    return next((file for file in files if is_intact(file)), None)


def is_intact(file: Path) -> bool:
    """Whether the copy is there and is byte for byte what was put there."""
    digest = _digest_file(file)
    return file.is_file() and digest.is_file() and digest.read_text(encoding="ascii").strip() == _sha256(file)


def remember(folder: Path, artifact: Artifact, provider: Provider) -> Path:
    """Copy a ready volume into the cache; the digest is written last, so that a partial copy is never used."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = cached_file(folder, artifact, provider.volumes.forms[0])
    digest = _digest_file(file)
    digest.unlink(missing_ok=True)
    provider.volumes.export(artifact.volume, file)
    partial = digest.with_suffix(f".{os.getpid()}")
    partial.write_text(_sha256(file) + "\n", encoding="ascii")
    partial.replace(digest)
    return file


def _digest_file(file: Path) -> Path:
    return file.with_suffix(file.suffix + ".sha256")


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# Progress of builds: while Ansible works, the end of each one's log is looked at, and what has changed is said.
#
# Ansible tells of a task when it begins and when it has ended: of one that compiles for an hour, that is nothing. A
# role whose build writes its steps to a file names it on its page (`artifact.log`).

PERIOD_S = 2.0
LONGEST_PAUSE_S = 30.0
REST = 10
"""How many times as long as a look took nobody looks again: on a slow host the build gets the processor, not we."""
LOOK_TIMEOUT_S = 10.0
PATIENCE = 3
"""So many looks in a row have to fail before that is told: a host that is busy for a moment is no news."""
END_BYTES = 4096
"""More than the warnings that a compiler usually writes between two steps."""
_MISSING = b"No such file or directory"
_STATUS = re.compile(rb"(?<=[\r\n])\[(\d{1,9})/(\d{1,9})\]")


@dataclass(frozen=True, slots=True)
class Count:
    """How many of all steps are done."""

    done: int
    total: int

    def __str__(self) -> str:
        return f"{self.done} of {self.total}"


def last_count(end: bytes) -> Count | None:
    """The newest ``[done/total]`` with which ninja begins a line (it ends them with CR or LF); None without one.

    ``end`` is the last ``END_BYTES`` of a log, or all of a shorter one: only then it begins with a whole line.
    """
    text = end if len(end) >= END_BYTES else b"\n" + end
    found = [Count(int(done), int(total)) for done, total in _STATUS.findall(text)]
    return next((one for one in reversed(found) if one.done <= one.total and one.total), None)


def pause_after(took_s: float) -> float:
    """How long nobody looks after a look that took ``took_s``."""
    return min(max(PERIOD_S, REST * took_s), LONGEST_PAUSE_S)


@dataclass
class _Step:
    """A task of a build; ``count`` is what its log said last, also what it said when the task began."""

    task: str
    count: Count | None = None
    is_known: bool = False


class _Watch:
    """One build, looked at until ``ended``."""

    def __init__(self, artifact: Artifact, provider: Provider, emit: Emit, ended: threading.Event) -> None:
        self._artifact = artifact
        self._provider = provider
        self._emit = emit
        self._ended = ended
        self._lock = threading.Lock()
        self._step: _Step | None = None

    def go_on(self, task: str) -> None:
        """It does this now; what is read of the task before is not told any more when this has returned."""
        with self._lock:
            self._step = _Step(task) if task else None

    def run(self) -> None:
        """Look again and again; a host that cannot be asked fails no build, and is told of once."""
        failures, is_told, pause_s = 0, False, PERIOD_S
        while not self._ended.wait(pause_s):
            began = monotonic()
            try:
                self._look()
                failures = 0
            except ProvisionError as error:
                failures += 1
                if failures >= PATIENCE and not is_told:
                    is_told = self._complain(error)
            pause_s = pause_after(monotonic() - began)

    def _look(self) -> None:
        step = self._step
        if step is None:
            return
        count = self._read()
        with self._lock:
            if step is not self._step or self._ended.is_set():
                return
            # What stood there when the task began is the end of the one before.
            if step.is_known and count is not None and count != step.count:
                self._emit(ApplyProgress(self._artifact.name, f"{step.task}: {count}", goes_on=True))
            step.count, step.is_known = count or step.count, True

    def _read(self) -> Count | None:
        builder, log = self._artifact.builder, self._artifact.log
        command = ["tail", "-c", str(END_BYTES), "--", log]
        done = self._provider.execute(builder, command, environment={"LC_ALL": "C"}, timeout_s=LOOK_TIMEOUT_S)
        if done.returncode == 0:
            return last_count(done.stdout)
        if _MISSING in done.stderr:
            return None
        details = Foreign.of_output(done.stderr) or f"tail ended with {done.returncode}"
        raise ProviderError(f"Unable to read {log} in container {builder}", details=details)

    def _complain(self, error: ProvisionError) -> bool:
        with self._lock:
            if self._ended.is_set():  # its container goes away now
                return False
            warning = f"Unable to see how far the build of {self._artifact.name} is; it goes on"
            self._emit(Diagnostic("warning", warning, "\n".join(filter(None, (error.message, error.details)))))
            return True


class Watching:
    """A thread for each build that writes a log, while the context lasts; nothing is said after it."""

    def __init__(self, artifacts: Sequence[Artifact], providers: Mapping[str, Provider], emit: Emit) -> None:
        self._ended = threading.Event()
        self._watches = {
            one.builder: _Watch(one, providers[one.host], emit, self._ended) for one in artifacts if one.log
        }
        self._threads = [
            threading.Thread(target=watch.run, name=f"watch {builder}", daemon=True)
            for builder, watch in self._watches.items()
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def go_on(self, builder: str, task: str) -> None:
        """The build in container ``builder`` does ``task`` now; empty: it waits for its next one."""
        if builder in self._watches:
            self._watches[builder].go_on(task)


# Downloads that go on: what one has received stays for the next run in its builder, stopped, with the volume that is
# not ready.
#
# The builder and not the volume alone, because there are hosts where the content grows in the builder. It bears the
# lab's mark and is named after the content: a plan that no longer wants that content deletes both, as `destroy` does.

WORTH_KEEPING = "+64k"
"""Of a folder without a file of this size (GNU find's words) nothing is lost."""

Say = Callable[[str], None]


def reopened(artifact: Artifact, builder: Instance, provider: Provider, say: Say) -> bool:
    """Whether the builder of an earlier run of this lab is ready again, with what it has received."""
    there = provider.read(builder.name)
    if there is None or (there.lab, there.kind) != (builder.lab, InstanceKind.BUILDER):
        return False
    try:
        provider.stop(builder)  # what a killed run has left going in it must not write beside the new one
        if builder.settings:
            provider.update(replace(there, settings={**there.settings, **builder.settings}))
        provider.start(builder)
        provider.wait_until_ready(builder)
        if _holds_something(artifact, builder, provider):
            say("go on where the download stopped")
            return True
    except ProviderError as error:
        say(f"begin anew: what an earlier run left is of no use ({error.message})")
    return False


def remove_left(artifact: Artifact, provider: Provider) -> None:
    """Delete the builder that a run has left, of whatever lab: who holds the volume's lock knows that it has ended."""
    builder = provider.read(provider.volumes.builder(artifact.volume) or artifact.builder)
    if builder is None:
        return
    if builder.kind is not InstanceKind.BUILDER:
        raise ProviderError(
            f"Unable to make {artifact.name}: container {builder.name} on host {artifact.host} is in the way",
            details="It has the name of a throwaway container, or writes to the artifact's volume, and is neither "
            "marked as throwaway nor deleted.",
            resolution="Rename or delete it if nobody needs it, and run up again.",
        )
    provider.delete(builder)


def kept(artifact: Artifact, builder: Instance, provider: Provider, say: Say) -> bool:
    """Whether what has come was left for the next run; else builder and volume are there as before, if they are."""
    try:
        if not _holds_something(artifact, builder, provider):
            return False
        provider.stop(builder)
    except ProviderError as error:
        say(f"What has come of {artifact.name} cannot be kept: {error.message}")
        return False
    say(f"What has come of {artifact.name} stays on host {artifact.host}: the next up goes on there")
    return True


def _holds_something(artifact: Artifact, builder: Instance, provider: Provider) -> bool:
    command = ["find", artifact.path, "-type", "f", "-size", WORTH_KEEPING, "-print", "-quit"]
    done = provider.execute(builder.name, command, timeout_s=60)
    return done.returncode == 0 and bool(done.stdout.strip())
