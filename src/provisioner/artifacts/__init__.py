"""Makes what is made once per host: from the cache, else by the role's ``build.yml`` in a throwaway container.

A volume is marked ready last, so that an interrupted build is never mistaken for an artifact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Protocol

from provisioner import paths
from provisioner.artifacts.cache import cached_file, is_intact, remember
from provisioner.errors import ProvisionError
from provisioner.events import ApplyComplete, ApplyErrored, ApplyProgress, ApplyStart, Event
from provisioner.inventory import render_builders
from provisioner.providers.base import Provider
from provisioner.runner import PlaybookResult, TaskEvent
from provisioner.state import Artifact, Device, Instance, InstanceKind, Secret

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
    """Have every artifact on its host, ready to be mounted; raises when one cannot be made, leaving none half made."""
    folder = cache or paths.cache() / "artifacts"
    missing = [one for one in artifacts if not _imported(one, providers[one.host], folder, emit)]
    if missing:
        _build(missing, providers, lab, run_playbook, emit)
        for one in missing:
            if one.cacheable:
                emit(ApplyProgress(one.name, "keep a copy in the cache"))
                remember(folder, one, providers[one.host])


def _imported(artifact: Artifact, provider: Provider, folder: Path, emit: Emit) -> bool:
    file = cached_file(folder, artifact)
    if not artifact.cacheable or not is_intact(file):
        return False
    with _announced(artifact, "import", emit):
        provider.import_volume(artifact.volume, artifact.digest, file)
    return True


def _build(
    artifacts: Sequence[Artifact], providers: Mapping[str, Provider], lab: str, run_playbook: RunPlaybook, emit: Emit
) -> None:
    builders = {one.builder: _builder(one, lab) for one in artifacts}
    names = {one.builder: one.name for one in artifacts}
    started = monotonic()

    def on_task(event: TaskEvent) -> None:
        if event.status == "start":
            emit(ApplyProgress(names.get(event.host, event.host), event.task))

    try:
        for one in artifacts:
            emit(ApplyStart(one.name, "build"))
        with ThreadPoolExecutor(len(artifacts)) as pool:
            list(pool.map(lambda one: _open(one, builders[one.builder], providers[one.host]), artifacts))
        connections = {one.builder: providers[one.host].connection_variables(one.builder) for one in artifacts}
        inventory = render_builders(artifacts, connections, paths.inventory_templates())
        run_playbook("artifacts.yml", inventory, on_task=on_task).raise_for_failure(
            f"build {', '.join(one.name for one in artifacts)}"
        )
        for one in artifacts:
            providers[one.host].stop(builders[one.builder])
            providers[one.host].mark_volume_ready(one.volume)
            emit(ApplyComplete(one.name, "build", monotonic() - started))
    except ProvisionError as error:
        for one in artifacts:
            emit(ApplyErrored(one.name, "build", error.message))
        _discard(artifacts, builders, providers, with_volumes=True)
        raise
    except KeyboardInterrupt:
        _discard(artifacts, builders, providers, with_volumes=True)
        raise
    _discard(artifacts, builders, providers, with_volumes=False)


def _builder(artifact: Artifact, lab: str) -> Instance:
    mount = {"volume": artifact.volume, "path": artifact.path, "readonly": "false"}
    device = Device("artifact", "volume", mount)
    return Instance(artifact.builder, artifact.host, lab, artifact.image, devices=(device,), kind=InstanceKind.BUILDER)


def _open(artifact: Artifact, builder: Instance, provider: Provider) -> None:
    provider.create_volume(artifact.volume, artifact.digest)
    provider.create(builder)
    provider.start(builder)
    provider.wait_until_ready(builder)


def _discard(
    artifacts: Sequence[Artifact],
    builders: Mapping[str, Instance],
    providers: Mapping[str, Provider],
    *,
    with_volumes: bool,
) -> None:
    for one in artifacts:
        providers[one.host].delete(builders[one.builder])
        if with_volumes:
            providers[one.host].delete_volume(one.volume)


@contextmanager
def _announced(artifact: Artifact, action: str, emit: Emit) -> Iterator[None]:
    emit(ApplyStart(artifact.name, action))
    started = monotonic()
    try:
        yield
    except ProvisionError as error:
        emit(ApplyErrored(artifact.name, action, error.message))
        raise
    emit(ApplyComplete(artifact.name, action, monotonic() - started))
