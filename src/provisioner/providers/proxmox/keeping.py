"""The verbs of the driver about snapshots and copies of containers, artifact volumes and locks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from provisioner.providers.proxmox import adoption, cloning, copies, failures, locks, snapshots, volumes
from provisioner.providers.proxmox.host import ProxmoxHost, worded
from provisioner.values.state import Instance, Snapshot


class ProxmoxKeeping(ProxmoxHost):
    """The verbs of ``Provider`` that keep something, or give it up."""

    def snapshot(self, instance: Instance, name: str) -> Snapshot:
        """Take a snapshot of the container, running or not; it stays until it is deleted."""
        with worded(f"Unable to take snapshot {name} of container {instance.name}"):
            return snapshots.take(self, self.existing(instance, "take a snapshot of"), name)

    def delete_snapshot(self, instance: Instance, name: str) -> None:
        """Delete the snapshot; a missing one is success."""
        with worded(f"Unable to delete snapshot {name} of container {instance.name}"):
            guest = self.owned(instance, "delete a snapshot of")
            if guest is not None:
                snapshots.delete(self, guest, name)

    def rollback(self, instance: Instance, name: str) -> Instance:
        """Stop the container, make it what the snapshot holds, and start it again if it was running."""
        with worded(f"Unable to roll container {instance.name} back to snapshot {name}"):
            guest = self.existing(instance, "roll back")
            snapshots.rollback(self, guest, name)
            return self.seen(guest.vmid)

    def snapshot_obstacle(self, instance: Instance) -> str:
        """What is mounted of the host, or the storage that remembers nothing."""
        with worded(f"Unable to look at container {instance.name}"):
            return snapshots.obstacle(self, adoption.named(self, instance))

    def goes_back_to_newest_only(self, instance: Instance) -> bool:
        """Whether one of its disks is on ZFS."""
        with worded(f"Unable to look at container {instance.name}"):
            return snapshots.goes_back_to_newest_only(self, self.existing(instance, "look at"))

    def clone(self, instance: Instance, name: str) -> Instance:
        """Copy the container as it is now, running or not, and read the copy back."""
        with worded(f"Unable to clone container {instance.name} as {name}"):
            guest = self.existing(instance, "clone")
            guest = replace(guest, pool=self.pools().get(guest.vmid, ""))
            return self.seen(cloning.copy(self, guest, replace(instance, name=name)))

    def create_volume(self, volume: str, digest: str) -> None:
        """Make an empty artifact volume, not ready yet; a half-made one of that name is replaced."""
        with worded(f"Unable to create volume {volume}"):
            volumes.create(self.ssh, volume, digest)

    def mark_volume_ready(self, volume: str) -> None:
        """Pack what its builder, which is stopped, has made, and say that it is complete."""
        with worded(f"Unable to mark volume {volume}"):
            volumes.mark_ready(self.ssh, volume, copies.builder_of(self, volume))

    def delete_volume(self, volume: str) -> None:
        """Delete an artifact volume; a missing one is success, one that a container or a snapshot needs is left."""
        with worded(f"Unable to delete volume {volume}"):
            if volume not in copies.needed(self):
                volumes.delete(self.ssh, volume)

    def export_volume(self, volume: str, target: Path) -> None:
        """Write the volume's content as one compressed file that appears when it is whole."""
        with worded(f"Unable to export volume {volume}"):
            volumes.export(self.ssh, volume, target)

    def import_volume(self, volume: str, digest: str, source: Path) -> None:
        """Make the volume from an exported file and mark it ready."""
        with worded(f"Unable to import volume {volume} from {source}"):
            volumes.restore(self.ssh, volume, digest, source)

    def create_lock(self, name: str, properties: Mapping[str, str]) -> bool:
        """Make the pool ``name``; False when there is one."""
        with failures.reachable(f"Unable to make lock {name} on host {self.host}"):  # nothing was touched before it
            return locks.create(self.client, name, properties)

    def read_locks(self, prefix: str) -> dict[str, dict[str, str]]:
        """What is written on the pools whose names begin with ``prefix``."""
        with worded(f"Unable to read the locks of host {self.host}"):
            return locks.read(self.client, prefix)

    def renew_lock(self, name: str, properties: Mapping[str, str]) -> bool:
        """Write on the pool; False when it is gone or somebody else's."""
        with worded(f"Unable to renew lock {name} on host {self.host}"):
            return locks.renew(self.client, name, properties)

    def delete_lock(self, name: str) -> None:
        """Delete the pool; a missing one is success."""
        with worded(f"Unable to delete lock {name} on host {self.host}"):
            locks.delete(self.client, name)
