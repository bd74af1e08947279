"""Makes what is made once per host: from the cache, else by the role's ``build.yml`` in a throwaway container.

A volume is marked ready last, so that an interrupted build is never mistaken for an artifact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Protocol

from provisioner.artifacts import resuming
from provisioner.artifacts.cache import intact_copy, remember
from provisioner.artifacts.programs import keep_program
from provisioner.artifacts.watching import Watching
from provisioner.inventory import render_builders
from provisioner.providers.base import Provider
from provisioner.runner import PlaybookResult, TaskEvent
from provisioner.values import paths
from provisioner.values.errors import ProvisionError
from provisioner.values.events import ApplyComplete, ApplyErrored, ApplyProgress, ApplyStart, Diagnostic, Event
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
            if missing:
                _Build(missing, providers, lab, run_playbook, emit, folder).run()
        except BaseException:
            for waiting in imports:
                waiting.cancel()
            raise
    for ended in imports:
        ended.result()


def _import(artifact: Artifact, file: Path, provider: Provider, emit: Emit) -> None:
    emit(ApplyStart(artifact.name, "import"))
    started = monotonic()
    try:
        provider.import_volume(artifact.volume, artifact.digest, file)
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
        if artifact.resumable and resuming.reopened(artifact, builder, provider, self._say(artifact)):
            self.opened.add(artifact.builder)
            return
        provider.create_volume(artifact.volume, artifact.digest)
        self.opened.add(artifact.builder)
        provider.create(builder)
        provider.start(builder)
        provider.wait_until_ready(builder)

    def _finish(self, artifact: Artifact) -> None:
        provider = self._provider(artifact)
        provider.stop(self._builder(artifact))
        provider.mark_volume_ready(artifact.volume)
        self.made.add(artifact.builder)
        if artifact.cacheable:
            self.emit(ApplyProgress(artifact.name, "keep a copy in the cache"))
            keep_program(artifact, remember(self.folder, artifact, provider))
        self.emit(ApplyComplete(artifact.name, "build", monotonic() - self.started))

    def _discard(self) -> None:
        for one in [one for one in self.artifacts if one.builder in self.opened]:
            provider, builder = self._provider(one), self._builder(one)
            is_made = one.builder in self.made
            if one.resumable and not is_made and resuming.kept(one, builder, provider, self._tell):
                continue
            provider.delete(builder)
            if not is_made:
                provider.delete_volume(one.volume)

    def _tell(self, message: str) -> None:
        self.emit(Diagnostic("note", message))

    def _say(self, artifact: Artifact) -> resuming.Say:
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
            artifact.builder, artifact.host, self.lab, artifact.image, devices=devices, kind=InstanceKind.BUILDER
        )
