"""Snapshots and copies of a container."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from provisioner.hosts import base
from provisioner.hosts.incus import files
from provisioner.hosts.incus.api import Client, WireError
from provisioner.hosts.incus.containers import change
from provisioner.hosts.incus.network import released
from provisioner.hosts.incus.translate import LAB, is_root, snapshot_of, without_publications
from provisioner.values.errors import ProviderError
from provisioner.values.state import Instance, Snapshot

if TYPE_CHECKING:
    from provisioner.hosts.incus import IncusProvider

_NEVER = "0001-01-01T00:00:00Z"
"""Go's empty time: the snapshot stays, whatever its container's or profile's `snapshots.expiry` says."""


class Snapshots(base.Snapshots):
    """Snapshots of the containers of one host."""

    _host: IncusProvider

    def take(self, instance: Instance, name: str) -> Snapshot:
        """Take a snapshot of the container, running or not; it stays until it is deleted."""
        with self._host.worded(f"Unable to take snapshot {name} of container {instance.name}"):
            self._host.existing(instance, "take a snapshot of")
            body = {"name": name, "stateful": False, "expires_at": _NEVER}
            self._host.client.change("post", "instances", instance.name, "snapshots", body=body)
            return snapshot_of(self._host.client.get("instances", instance.name, "snapshots", name))

    def delete(self, instance: Instance, name: str) -> None:
        """Delete the snapshot; a missing one is success."""
        with self._host.worded(f"Unable to delete snapshot {name} of container {instance.name}"):
            self._host.owned(instance, "delete a snapshot of")
            place = ("instances", instance.name, "snapshots", name)
            if self._host.client.find(*place) is not None:
                self._host.client.change("delete", *place)

    def rollback(self, instance: Instance, name: str) -> Instance:
        """Stop the container, make it what the snapshot holds, and start it again if it was running."""
        with self._host.worded(f"Unable to roll container {instance.name} back to snapshot {name}"):
            was_stopped = self._host.existing(instance, "roll back")["status"] == "Stopped"
            _require(self._host.client, instance, name)
            # Incus would stop a running one itself, and now and then leaves it stopped with the error "In use".
            self._host.stop(instance)
            try:
                self._host.client.change("put", "instances", instance.name, body={"restore": name})
            finally:
                if not was_stopped:
                    self._host.start(instance)
            return self._host.read_back(instance.name)

    def obstacle(self, instance: Instance) -> str:
        """The writable volumes and folders that are mounted in it: a snapshot holds its own disk alone."""
        with self._host.worded(f"Unable to look at container {instance.name}"):
            disks = _disks(self._host.client.get("instances", instance.name))
        writable = [disk for disk in disks if disk.get("readonly") != "true"]
        writable.sort(key=lambda disk: disk["path"])
        return "; ".join(
            f"{disk['source']} is mounted writable at {disk['path']} and not in a snapshot" for disk in writable
        )


def _require(client: Client, instance: Instance, snapshot: str) -> None:
    """Refuse a snapshot that is missing, lacks our mark, or needs a volume that is gone: Incus would go half the way.

    It would stop the container, restore it, and then fail to start it.
    """
    name, lab = instance.name, instance.lab
    what = f"Unable to roll container {name} back to snapshot {snapshot}"
    found = client.find("instances", name, "snapshots", snapshot)
    if found is None:
        raise ProviderError(what, details="There is no such snapshot.", resolution=f"See: incus info {name}")
    if found["config"].get(LAB) != lab:
        details = f"It does not bear the mark of lab {lab}: it was taken before provision made the container its own."
        raise ProviderError(what, details=details, resolution="Choose another snapshot.")
    for disk in _disks(found):
        if "pool" not in disk:
            continue
        if client.find("storage-pools", disk["pool"], "volumes", "custom", disk["source"]) is None:
            details = f"It needs volume {disk['source']}, which is no longer there."
            resolution = "Make the volume again with the file of that time, or choose another snapshot."
            raise ProviderError(what, details=details, resolution=resolution)


def copy(client: Client, name: str, target: str, root: Mapping[str, str]) -> None:
    """Copy the container as it is now, stopped, without what two cannot have: ports of the host, a machine id."""
    source = {"type": "copy", "source": name, "instance_only": True}
    client.change("post", "instances", body={"name": target, "type": "container", "source": source})
    try:
        change(client, target, lambda body: released(without_publications(body)), root)
        _forget_machine_id(client, target)
    except BaseException:  # an interruption, too, must not leave a copy that fights with its source over its ports
        client.change("delete", "instances", target)
        raise


def _forget_machine_id(client: Client, name: str) -> None:
    # systemd makes a new one where the file is empty; with the old one both may get the same address by DHCP.
    try:
        files.push(client.endpoint, name, b"", "/etc/machine-id", mode=0o444)
    except WireError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise


def _disks(found: Mapping[str, Any]) -> list[Mapping[str, str]]:
    disks = []
    for device in found["expanded_devices"].values():
        is_disk = device["type"] == "disk"
        if is_disk and not is_root(device):
            disks.append(device)
    return disks
