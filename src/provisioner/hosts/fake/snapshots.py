"""Snapshots of the fake's containers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from provisioner.hosts import base
from provisioner.hosts.fake.volumes import volumes_of
from provisioner.values.errors import ProviderError
from provisioner.values.state import Instance, Snapshot

if TYPE_CHECKING:
    from provisioner.hosts.fake import FakeProvider


class Snapshots(base.Snapshots):
    """The snapshots of one world's containers."""

    _host: FakeProvider

    def take(self, instance: Instance, name: str) -> Snapshot:
        """Take a snapshot of the container as it is now; a taken name is refused."""
        what = f"Unable to take snapshot {name} of container {instance.name}"
        with self._host.mutex:
            container = self._host.existing(instance, "take a snapshot of")
            if name in container.states:
                raise ProviderError(what, details="The name is taken.")
            volumes = tuple(sorted(volumes_of(container.instance)))
            made = Snapshot(name, datetime.now(UTC).isoformat(), volumes)
            container.states[name] = container.state()
            container.instance = replace(container.instance, snapshots=(*container.instance.snapshots, made))
            return made

    def delete(self, instance: Instance, name: str) -> None:
        """Forget it; a missing one is success."""
        with self._host.mutex:
            container = self._host.owned(instance, "delete a snapshot of")
            if container is not None and container.states.pop(name, None) is not None:
                left = tuple(snapshot for snapshot in container.instance.snapshots if snapshot.name != name)
                container.instance = replace(container.instance, snapshots=left)

    def is_newest_only(self, instance: Instance) -> bool:  # noqa: ARG002 - all containers here are alike
        """``newest_only``, as ZFS does."""
        return self._host.newest_only

    def rollback(self, instance: Instance, name: str) -> Instance:
        """Make the container what the snapshot holds, running as it is now; its new address comes once it is ready."""
        what = f"Unable to roll container {instance.name} back to snapshot {name}"
        with self._host.mutex:
            container = self._host.existing(instance, "roll back")
            if name not in container.states:
                raise ProviderError(what, details="There is no such snapshot.")
            if self._host.newest_only and name != list(container.states)[-1]:
                raise ProviderError(what, details="There are newer ones.")
            state, now = container.states[name], container.instance
            self._host.volumes.require(state.instance, what)
            container.instance = replace(state.instance, status=now.status, address=None, snapshots=now.snapshots)
            container.files, container.modes = dict(state.files), dict(state.modes)
            return container.instance

    def obstacle(self, instance: Instance) -> str:
        """What ``obstacles`` says."""
        return self._host.obstacles.get(instance.name, "")
