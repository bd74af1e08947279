"""Snapshots and copies of a container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from provisioner.errors import ProviderError
from provisioner.providers.proxmox import copies, making, marks, mounts, stopping
from provisioner.providers.proxmox.failures import PveError
from provisioner.providers.proxmox.guest import NOW, Guest, options_of, snapshot_id, snapshots_of
from provisioner.providers.proxmox.host import CAN_SNAPSHOT, Entry, ProxmoxHost
from provisioner.providers.proxmox.marks import Mark
from provisioner.state import Snapshot, Status

NEWEST_ONLY = "zfspool"
"""The type of storage that goes back to a disk's newest snapshot only."""


def take(host: ProxmoxHost, guest: Guest, name: str) -> Snapshot:
    """Keep the container as it is now, and its mark: of all options Proxmox leaves out the description."""
    kept = snapshot_id(name)
    take_plainly(host, guest, kept, marks.written(guest.text, replace(mark_of(guest), snapshot=name)))
    found = snapshots_of([one for one in listed(host, guest) if one["name"] == kept], guest.vmid)
    if not found:
        raise PveError("the node has taken it, and it is not there")
    return found[0]


def delete(host: ProxmoxHost, guest: Guest, name: str) -> None:
    """Delete the snapshot; a missing one is success."""
    kept = snapshot_id(name)
    if any(one["name"] == kept for one in listed(host, guest)):
        forget(host, guest, kept)
        copies.tidy(host, guest.vmid)


def rollback(host: ProxmoxHost, guest: Guest, name: str) -> None:
    """Stop the container, make it what the snapshot holds, and start it again if it was running."""
    kept = snapshot_id(name)
    text, mark = _require(host, guest, name, kept)
    stopping.stop(host, guest, making.KILL_S)
    try:
        host.task(lambda: host.client.post(*host.path(guest.vmid, "snapshot", kept, "rollback")), guest.name)
        _write_mark(host, guest, text, mark)
        copies.tidy(host, guest.vmid)
    except BaseException:
        with suppress(PveError, ProviderError):  # why it could not go back is what has to be told
            _run_again(host, guest)
        raise
    _run_again(host, guest)


def _run_again(host: ProxmoxHost, guest: Guest) -> None:
    if guest.status is Status.RUNNING:
        making.start(host, host.now(guest.vmid))


def goes_back_to_newest_only(host: ProxmoxHost, guest: Guest) -> bool:
    """Whether one of its disks lies on a storage of that kind."""
    types = _storage_types(host)
    return any(types.get(name) == NEWEST_ONLY for name in _storages(guest.config))


def obstacle(host: ProxmoxHost, guest: Guest) -> str:
    """Why no snapshot can be taken of the container, or would not hold all of it."""
    theirs = [f"{source} of the host is mounted at {path}" for source, path in mounts.of_the_host(guest.config)]
    if theirs:
        return "; ".join(theirs) + ": Proxmox takes no snapshot of such a container"
    if host.client.get(*host.path(guest.vmid, "feature"), feature="snapshot")["hasFeature"]:
        return ""
    types = _storage_types(host)
    unfit = sorted(name for name in _storages(guest.config) if types.get(name) not in CAN_SNAPSHOT)
    named = ", ".join(f"{name} ({types.get(name, 'unknown')})" for name in unfit or sorted(_storages(guest.config)))
    return f"its storage {named} takes no snapshots of containers"


def mark_of(guest: Guest) -> Mark:
    """The mark that it bears; ``ProviderError`` when there is none."""
    if guest.mark is None:
        raise ProviderError(f"Unable to use container {guest.name}", details="It bears no mark.")
    return guest.mark


def listed(host: ProxmoxHost, guest: Guest) -> list[Entry]:
    """Its snapshots as the API lists them, without what it is now."""
    found: list[Entry] = host.client.get(*host.path(guest.vmid, "snapshot"))
    return [one for one in found if one["name"] != NOW]


def take_plainly(host: ProxmoxHost, guest: Guest, kept: str, description: str) -> None:
    """Take a snapshot of that very name, and wait for it; one whose answer was lost is looked for."""
    before = {one["name"] for one in listed(host, guest)}
    form: dict[str, Any] = {"snapname": kept, "description": description}
    try:
        host.task(lambda: host.client.post(*host.path(guest.vmid, "snapshot"), **form), guest.name)
    except PveError as error:
        if not error.lost or kept in before:
            raise
        host.settle(guest.vmid, guest.name)
        if not any(one["name"] == kept and "snapstate" not in one for one in listed(host, guest)):
            raise


def forget(host: ProxmoxHost, guest: Guest, kept: str) -> None:
    """Delete a snapshot of that very name, and wait for it."""
    try:
        host.task(lambda: host.client.delete(*host.path(guest.vmid, "snapshot", kept)), guest.name)
    except PveError as error:
        if error.lost:
            host.settle(guest.vmid, guest.name)
        if any(one["name"] == kept for one in listed(host, guest)):
            raise


def _require(host: ProxmoxHost, guest: Guest, name: str, kept: str) -> tuple[str, Mark]:
    """What the snapshot's description says; refuse one that is missing, lacks our mark, or cannot be gone back to."""
    what = f"Unable to roll container {guest.name} back to snapshot {name}"
    found = listed(host, guest)
    entry = next((one for one in found if one["name"] == kept), None)
    if entry is None:
        there = ", ".join(one.name for one in snapshots_of(found, guest.vmid)) or "none"
        raise ProviderError(what, details="There is no such snapshot.", resolution=f"Snapshots there: {there}")
    text, mark = marks.read(str(entry.get("description", "")), guest.vmid)
    if mark is None or mark.lab != guest.lab:
        details = f"It does not bear the mark of lab {guest.lab}: provision did not take it."
        raise ProviderError(what, details=details, resolution="Choose another snapshot.")
    newer = _newer(found, kept)
    if newer and NEWEST_ONLY in _types_of(host, guest, kept):
        raise ProviderError(
            what,
            details=f"Its storage is ZFS, which goes back to the newest snapshot only; newer: {', '.join(newer)}",
            resolution="Delete the newer ones of this container first, or choose the newest.",
        )
    return text, mark


def _newer(listed: Sequence[Entry], kept: str) -> list[str]:
    """The names of the snapshots that were taken after one, temporary ones, too, which are in the way as well."""
    ages = {str(one["name"]): int(one.get("snaptime", 0)) for one in listed}
    parents = {str(one["name"]): str(one.get("parent", "")) for one in listed}

    def follows(name: str) -> bool:
        seen: set[str] = set()
        while (name := parents.get(name, "")) and name not in seen:
            seen.add(name)
            if name == kept:
                return True
        return False

    return sorted(name for name in ages if name != kept and (ages[name] > ages[kept] or follows(name)))


def _types_of(host: ProxmoxHost, guest: Guest, kept: str) -> set[str]:
    config = options_of(host.client.get(*host.path(guest.vmid, "snapshot", kept, "config")))
    types = _storage_types(host)
    return {types.get(name, "") for name in _storages(config)}


def _storage_types(host: ProxmoxHost) -> dict[str, str]:
    found = host.client.get("nodes", host.client.node, "storage")
    return {str(one["storage"]): str(one["type"]) for one in found}


def _storages(config: Mapping[str, str]) -> set[str]:
    disks = {disk.storage for disk in mounts.disks_of(config).values()}
    return (disks | {config.get("rootfs", "").partition(":")[0]}) - {""}


def _write_mark(host: ProxmoxHost, guest: Guest, text: str, mark: Mark) -> None:
    """The snapshot's mark on the container, which still has that of the state that was left."""
    now = host.config(guest.vmid)
    lost = [one for one in mounts.copies_in(guest) if one not in mounts.mounted(now.config)]
    discard = tuple(dict.fromkeys((*mark_of(guest).discard, *lost)))
    description = marks.written(text, replace(mark, snapshot="", discard=discard))
    host.client.put(*host.path(guest.vmid, "config"), description=description, digest=now.digest)
