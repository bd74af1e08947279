"""Snapshots and copies of a container."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from provisioner.hosts.incus import files
from provisioner.hosts.incus.api import Client, WireError
from provisioner.hosts.incus.confinement import released
from provisioner.hosts.incus.containers import change
from provisioner.hosts.incus.translate import is_root, snapshot_of, without_publications
from provisioner.values.errors import ProviderError
from provisioner.values.state import Snapshot

_NEVER = "0001-01-01T00:00:00Z"
"""Go's empty time: the snapshot stays, whatever its container's or profile's `snapshots.expiry` says."""


def take(client: Client, name: str, snapshot: str) -> Snapshot:
    """Take a snapshot of the container."""
    body = {"name": snapshot, "stateful": False, "expires_at": _NEVER}
    client.change("post", "instances", name, "snapshots", body=body)
    return snapshot_of(client.get("instances", name, "snapshots", snapshot))


def delete(client: Client, name: str, snapshot: str) -> None:
    """Delete the snapshot; a missing one is success."""
    if client.find("instances", name, "snapshots", snapshot) is not None:
        client.change("delete", "instances", name, "snapshots", snapshot)


def require(client: Client, name: str, snapshot: str, mark: tuple[str, str]) -> None:
    """Refuse a snapshot that is missing, lacks our mark, or needs a volume that is gone: Incus would go half the way.

    It would stop the container, restore it, and then fail to start it.
    """
    what = f"Unable to roll container {name} back to snapshot {snapshot}"
    found = client.find("instances", name, "snapshots", snapshot)
    if found is None:
        raise ProviderError(what, details="There is no such snapshot.", resolution=f"See: incus info {name}")
    key, lab = mark
    if found["config"].get(key) != lab:
        details = f"It does not bear the mark of lab {lab}: it was taken before provision made the container its own."
        raise ProviderError(what, details=details, resolution="Choose another snapshot.")
    for disk in _disks(found):
        if "pool" not in disk:
            continue
        if client.find("storage-pools", disk["pool"], "volumes", "custom", disk["source"]) is None:
            details = f"It needs volume {disk['source']}, which is no longer there."
            resolution = "Make the volume again with the file of that time, or choose another snapshot."
            raise ProviderError(what, details=details, resolution=resolution)


def restore(client: Client, name: str, snapshot: str) -> None:
    """Make the stopped container what the snapshot holds."""
    client.change("put", "instances", name, body={"restore": snapshot})


def obstacle(found: Mapping[str, Any]) -> str:
    """Why a snapshot of the container would not hold all of it: what is written to disks that are not its own."""
    disks = sorted(_disks(found), key=lambda disk: disk["path"])
    writable = [disk for disk in disks if disk.get("readonly") != "true"]
    return "; ".join(
        f"{disk['source']} is mounted writable at {disk['path']} and not in a snapshot" for disk in writable
    )


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
    return [device for device in found["expanded_devices"].values() if device["type"] == "disk" and not is_root(device)]
