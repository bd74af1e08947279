"""Snapshots and copies of a container."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from provisioner.errors import ProviderError
from provisioner.providers.proxmox import copies, failures, making, marks, mounts
from provisioner.providers.proxmox.failures import PveError
from provisioner.providers.proxmox.guest import NOW, TEMPORARY, Guest, options_of, snapshot_id, snapshots_of
from provisioner.providers.proxmox.host import CAN_SNAPSHOT, Entry, ProxmoxHost
from provisioner.providers.proxmox.marks import Mark
from provisioner.providers.proxmox.network import released
from provisioner.state import Instance, Snapshot, Status

NEWEST_ONLY = "zfspool"
"""The type of storage that goes back to a disk's newest snapshot only."""


def take(host: ProxmoxHost, guest: Guest, name: str) -> Snapshot:
    """Keep the container as it is now, and its mark: of all options Proxmox leaves out the description."""
    kept = snapshot_id(name)
    _take(host, guest, kept, marks.written(guest.text, replace(_mark(guest), snapshot=name)))
    found = snapshots_of([one for one in _listed(host, guest) if one["name"] == kept], guest.vmid)
    if not found:
        raise PveError("the node has taken it, and it is not there")
    return found[0]


def delete(host: ProxmoxHost, guest: Guest, name: str) -> None:
    """Delete the snapshot; a missing one is success."""
    kept = snapshot_id(name)
    if any(one["name"] == kept for one in _listed(host, guest)):
        _forget(host, guest, kept)
        copies.tidy(host, guest.vmid)


def rollback(host: ProxmoxHost, guest: Guest, name: str) -> None:
    """Stop the container, make it what the snapshot holds, and start it again if it was running."""
    kept = snapshot_id(name)
    text, mark = _require(host, guest, name, kept)
    making.stop(host, guest, making.KILL_S)
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


def copy(host: ProxmoxHost, guest: Guest, wanted: Instance) -> int:
    """Copy the container as it is now, under another name and number, with addresses of its own; the number."""
    if any(one.get("name") == wanted.name for one in host.entries()):
        raise ProviderError(
            f"Unable to clone container {guest.name} as {wanted.name}",
            details=f"Node {host.client.node} has a container {wanted.name}.",
        )
    with host.turn(guest.storage), _state(host, guest) as state:

        def attempt(vmid: int) -> None:
            _copy(host, guest, wanted, vmid, state)

        vmid = making.numbered(host, replace(wanted, settings={}), attempt)
    try:
        card = guest.config.get("net0")
        config = host.config(vmid)
        if card and released(card) != card:
            net = released(config.config["net0"])
            host.client.put(*host.path(vmid, "config"), net0=net, digest=config.digest)
    except BaseException:  # an interruption, too, must not leave a copy that fights with its source over its address
        making.remove(host, vmid, wanted)
        raise
    return vmid


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


def _mark(guest: Guest) -> Mark:
    if guest.mark is None:
        raise ProviderError(f"Unable to use container {guest.name}", details="It bears no mark.")
    return guest.mark


def _listed(host: ProxmoxHost, guest: Guest) -> list[Entry]:
    found: list[Entry] = host.client.get(*host.path(guest.vmid, "snapshot"))
    return [one for one in found if one["name"] != NOW]


def _take(host: ProxmoxHost, guest: Guest, kept: str, description: str) -> None:
    before = {one["name"] for one in _listed(host, guest)}
    form: dict[str, Any] = {"snapname": kept, "description": description}
    try:
        host.task(lambda: host.client.post(*host.path(guest.vmid, "snapshot"), **form), guest.name)
    except PveError as error:
        if not error.lost or kept in before:
            raise
        host.settle(guest.vmid, guest.name)
        if not any(one["name"] == kept and "snapstate" not in one for one in _listed(host, guest)):
            raise


def _forget(host: ProxmoxHost, guest: Guest, kept: str) -> None:
    try:
        host.task(lambda: host.client.delete(*host.path(guest.vmid, "snapshot", kept)), guest.name)
    except PveError as error:
        if error.lost:
            host.settle(guest.vmid, guest.name)
        if any(one["name"] == kept for one in _listed(host, guest)):
            raise


def _require(host: ProxmoxHost, guest: Guest, name: str, kept: str) -> tuple[str, Mark]:
    """What the snapshot's description says; refuse one that is missing, lacks our mark, or cannot be gone back to."""
    what = f"Unable to roll container {guest.name} back to snapshot {name}"
    listed = _listed(host, guest)
    entry = next((one for one in listed if one["name"] == kept), None)
    if entry is None:
        there = ", ".join(one.name for one in snapshots_of(listed, guest.vmid)) or "none"
        raise ProviderError(what, details="There is no such snapshot.", resolution=f"Snapshots there: {there}")
    text, mark = marks.read(str(entry.get("description", "")), guest.vmid)
    if mark is None or mark.lab != guest.lab:
        details = f"It does not bear the mark of lab {guest.lab}: provision did not take it."
        raise ProviderError(what, details=details, resolution="Choose another snapshot.")
    newer = _newer(listed, kept)
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
    discard = tuple(dict.fromkeys((*_mark(guest).discard, *lost)))
    description = marks.written(text, replace(mark, snapshot="", discard=discard))
    host.client.put(*host.path(guest.vmid, "config"), description=description, digest=now.digest)


@contextmanager
def _state(host: ProxmoxHost, guest: Guest) -> Iterator[str]:
    """What is copied: a stopped container as it is (""), a running one by a snapshot that goes afterwards."""
    for one in _listed(host, guest):
        if str(one["name"]).startswith(TEMPORARY):
            _forget(host, guest, str(one["name"]))  # a run that was killed has left it
    if guest.status is not Status.RUNNING:
        yield ""
        return
    kept = f"{TEMPORARY}{secrets.token_hex(4)}"
    try:
        _take(host, guest, kept, "Only while a copy is made")
        yield kept
    finally:
        host.settle(guest.vmid, guest.name)
        if any(one["name"] == kept for one in _listed(host, guest)):
            _forget(host, guest, kept)


def _copy(host: ProxmoxHost, guest: Guest, wanted: Instance, vmid: int, state: str) -> None:
    mark = replace(_mark(guest), vmid=vmid, mac=False, discard=(), snapshot="")
    form: dict[str, Any] = {
        "newid": vmid,
        "hostname": wanted.name,
        "description": marks.written(guest.text, mark),
        "full": True,
        "snapname": state or None,
        "pool": guest.pool or None,
    }
    begun: list[str] = []

    def ask() -> str:
        begun.append(host.begun(host.client.post(*host.path(guest.vmid, "clone"), **form)))
        return begun[-1]

    try:
        host.task(ask, wanted.name)
    except PveError as error:
        if failures.is_taken(error) and not begun:
            raise  # somebody else's
        host.settle(guest.vmid, wanted.name)
        if error.lost and host.bears_mark(vmid, wanted):
            return
        if begun:
            making.remove(host, vmid, wanted)
        raise
    except BaseException:
        making.interrupt(host, begun)
        host.settle(guest.vmid, wanted.name)
        making.remove(host, vmid, wanted)
        raise
