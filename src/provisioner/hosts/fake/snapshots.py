"""Snapshots and copies of the fake's containers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from provisioner.hosts.fake.world import Container, World, volumes_of
from provisioner.values.errors import ProviderError
from provisioner.values.state import Instance, Snapshot, Status


class Snapshots(World):
    """The verbs about snapshots and copies."""

    def snapshot(self, instance: Instance, name: str) -> Snapshot:
        """Take a snapshot of the container as it is now; a taken name is refused."""
        what = f"Unable to take snapshot {name} of container {instance.name}"
        with self._lock:
            container = self._existing(instance, "take a snapshot of")
            if name in container.states:
                raise ProviderError(what, details="The name is taken.")
            volumes = tuple(sorted(volumes_of(container.instance)))
            made = Snapshot(name, datetime.now(UTC).isoformat(), volumes)
            container.states[name] = container.state()
            container.instance = replace(container.instance, snapshots=(*container.instance.snapshots, made))
            return made

    def delete_snapshot(self, instance: Instance, name: str) -> None:
        """Forget it; a missing one is success."""
        with self._lock:
            container = self._owned(instance, "delete a snapshot of")
            if container is not None and container.states.pop(name, None) is not None:
                left = tuple(snapshot for snapshot in container.instance.snapshots if snapshot.name != name)
                container.instance = replace(container.instance, snapshots=left)

    def goes_back_to_newest_only(self, instance: Instance) -> bool:  # noqa: ARG002 - all containers here are alike
        """``newest_only``, as ZFS does."""
        return self.newest_only

    def rollback(self, instance: Instance, name: str) -> Instance:
        """Make the container what the snapshot holds, running as it is now; its new address comes once it is ready."""
        what = f"Unable to roll container {instance.name} back to snapshot {name}"
        with self._lock:
            container = self._existing(instance, "roll back")
            if name not in container.states:
                raise ProviderError(what, details="There is no such snapshot.")
            if self.newest_only and name != list(container.states)[-1]:
                raise ProviderError(what, details="There are newer ones.")
            state, now = container.states[name], container.instance
            self._require_volumes(state.instance, what)
            container.instance = replace(state.instance, status=now.status, address=None, snapshots=now.snapshots)
            container.files, container.modes = dict(state.files), dict(state.modes)
            return container.instance

    def snapshot_obstacle(self, instance: Instance) -> str:
        """What ``obstacles`` says."""
        return self.obstacles.get(instance.name, "")

    def clone(self, instance: Instance, name: str) -> Instance:
        """Copy what it is now, stopped and unpublished."""
        what = f"Unable to clone container {instance.name} as {name}"
        with self._lock:
            source = self._existing(instance, "clone")
            self._require_room(name, what)
            state = source.state()
            devices = tuple(device for device in state.instance.devices if device.kind != "publish")
            made = replace(
                state.instance, name=name, devices=devices, status=Status.STOPPED, address=None, snapshots=()
            )
            self.containers[name] = Container(made, state.files, state.modes)
            return made
