"""Artifacts are made once per host: from the cache, else by the role's ``build.yml`` in a throwaway container.

A volume is marked ready last, so that an interrupted build is never mistaken for an artifact.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Protocol, Self

from provisioner.hosts.base import Provider
from provisioner.reconcile.inventory import render_builders
from provisioner.reconcile.runner import PlaybookResult, TaskEvent
from provisioner.serving.engine_memory import keep_program
from provisioner.values import paths
from provisioner.values.errors import ProviderError, ProvisionError
from provisioner.values.events import ApplyComplete, ApplyErrored, ApplyProgress, ApplyStart, Diagnostic, Event
from provisioner.values.plain_data import Foreign
from provisioner.values.state import Artifact, Device, Instance, InstanceKind, Secret, secrets_of

Emit = Callable[[Event], None]


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
    """Have every artifact on its host, ready to be mounted.

    Raises when one cannot be made: the others that were made are kept, and none is left half made, but for what a
    ``resumable`` one has received, which waits for the next run.
    """
    folder = cache or paths.cache() / "artifacts"
    copies: list[tuple[Artifact, Path]] = []
    missing: list[Artifact] = []
    for one in artifacts:
        file = intact_copy(folder, one, providers[one.host]) if one.cacheable else None
        if file is None:
            missing.append(one)
        else:
            copies.append((one, file))
            keep_program(one, file)
    with ThreadPoolExecutor(1) as beside:
        imports = [beside.submit(_import, one, file, providers[one.host], emit) for one, file in copies]
        try:
            for at_once in _builds_at_once(missing):
                _Build(at_once, providers, lab, run_playbook, emit, folder).run()
        except BaseException:
            for waiting in imports:
                waiting.cancel()
            raise
    for ended in imports:
        ended.result()


def _builds_at_once(artifacts: Sequence[Artifact]) -> list[list[Artifact]]:
    """Return the artifacts by what may be built at once: builders of one fixed address follow one another."""
    rounds = defaultdict[int, list[Artifact]](list)
    taken = Counter[str]()
    for artifact in artifacts:
        address = artifact.builder_address
        rounds[taken[address]].append(artifact)
        taken[address] += bool(address)
    return list(rounds.values())


def _import(artifact: Artifact, file: Path, provider: Provider, emit: Emit) -> None:
    emit(ApplyStart(artifact.name, "import"))
    started = monotonic()
    try:
        provider.volumes.import_from(artifact.volume, artifact.digest, file)
    except ProvisionError as error:
        emit(ApplyErrored(artifact.name, "import", error.message))
        raise
    emit(ApplyComplete(artifact.name, "import", monotonic() - started))


@dataclass
class _Build:
    """One build of several artifacts at once, a throwaway container each."""

    artifacts: Sequence[Artifact]
    providers: Mapping[str, Provider]
    lab: str
    run_playbook: RunPlaybook
    emit: Emit
    folder: Path
    started: float = field(default_factory=monotonic)
    made: set[str] = field(default_factory=set)
    opened: set[str] = field(default_factory=set)
    """Builders whose volume is ours to remove: one that another run is building is not. (Two distributions' builds of
    one program bear one name.)"""

    def run(self) -> None:
        """Build all; whatever happens, no builder and no half-made volume stays that the next run has no use for."""
        try:
            result = self._built()
        except ProvisionError as error:
            for one in self.artifacts:
                self.emit(ApplyErrored(one.name, "build", error.message))
            raise
        finally:
            self._discard()
        missing = [one.name for one in self.artifacts if one.builder not in self.made]
        result.raise_for_failure(f"build {', '.join(missing)}")

    def _built(self) -> PlaybookResult:
        for one in self.artifacts:
            self.emit(ApplyStart(one.name, "build"))
        with ThreadPoolExecutor(len(self.artifacts)) as pool:
            opening = [pool.submit(self._open, one) for one in self.artifacts]
        for opened in opening:
            opened.result()
        connections = {one.builder: self._provider(one).connection_variables(one.builder) for one in self.artifacts}
        inventory = render_builders(self.artifacts, connections, paths.inventory_templates())
        secrets = tuple(secrets_of([one.variables for one in self.artifacts]).values())
        with Watching(self.artifacts, self.providers, self.emit) as watching:
            on_task = partial(self._on_task, watching)
            result = self.run_playbook("artifacts.yml", inventory, on_task=on_task, secrets=secrets)
        failed = {event.host: event.message for event in result.failures}
        for one in self.artifacts:
            if one.builder in failed:
                self.emit(ApplyErrored(one.name, "build", failed[one.builder]))
            elif result.finished and (result.returncode == 0 or failed):
                self._finish(one)
        return result

    def _open(self, artifact: Artifact) -> None:
        provider, builder = self._provider(artifact), self._builder(artifact)
        if artifact.resumable and reopened(artifact, builder, provider, self._say(artifact)):
            self.opened.add(artifact.builder)
            return
        provider.volumes.create(artifact.volume, artifact.digest)
        self.opened.add(artifact.builder)
        provider.create(builder)
        provider.start(builder)
        provider.wait_until_ready(builder)

    def _finish(self, artifact: Artifact) -> None:
        provider = self._provider(artifact)
        provider.stop(self._builder(artifact))
        provider.volumes.mark_ready(artifact.volume)
        self.made.add(artifact.builder)
        if artifact.cacheable:
            self.emit(ApplyProgress(artifact.name, "keep a copy in the cache"))
            keep_program(artifact, remember(self.folder, artifact, provider))
        self.emit(ApplyComplete(artifact.name, "build", monotonic() - self.started))

    def _discard(self) -> None:
        for one in [one for one in self.artifacts if one.builder in self.opened]:
            provider, builder = self._provider(one), self._builder(one)
            is_made = one.builder in self.made
            if one.resumable and not is_made and kept(one, builder, provider, self._tell):
                continue
            provider.delete(builder)
            if not is_made:
                provider.volumes.delete(one.volume)

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
        return self.providers[artifact.host]

    def _builder(self, artifact: Artifact) -> Instance:
        mount = {"volume": artifact.volume, "path": artifact.path, "readonly": "false"}
        devices = (Device("artifact", "volume", mount),)
        return Instance(
            artifact.builder,
            artifact.host,
            self.lab,
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
    """Whether the builder of an earlier run is ready again, with what it has received.

    One that is of no use any more is deleted with its volume; one of another lab is refused.
    """
    there = provider.read(builder.name)
    if there is None:
        return False
    if there.lab != builder.lab or there.kind is not InstanceKind.BUILDER:
        raise ProviderError(
            f"Unable to build {artifact.name}: container {builder.name} on host {artifact.host} is at it already",
            details=f"It is of lab {there.lab or 'nobody'}, and holds what has come of the same content.",
            resolution="Let that lab finish (provision up), or give it up (provision destroy), and run this up again.",
        )
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
    provider.delete(builder)
    provider.volumes.delete(artifact.volume)
    return False


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
