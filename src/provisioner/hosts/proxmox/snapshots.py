"""Snapshots and clones of a container."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from provisioner.hosts import base
from provisioner.hosts.proxmox import containers, create, failures, marks, translate, volumes
from provisioner.hosts.proxmox.failures import PveError
from provisioner.hosts.proxmox.guest import NOW, TEMPORARY, Guest, options_of, snapshot_id, snapshots_of
from provisioner.hosts.proxmox.host import CAN_SNAPSHOT, Entry, ProxmoxHost, worded
from provisioner.hosts.proxmox.marks import Mark
from provisioner.hosts.proxmox.translate import released_network
from provisioner.values.errors import ProviderError
from provisioner.values.state import Instance, Snapshot, Status

NEWEST_ONLY = "zfspool"
"""The type of storage that rolls a disk back to its newest snapshot only."""
ROLLBACK_STOP_S = 60.0


class Snapshots(base.Snapshots):
    """Snapshots of the containers of one node."""

    _host: ProxmoxHost

    def take(self, instance: Instance, name: str) -> Snapshot:
        """Take a snapshot of the container and its mark: of all options Proxmox leaves out the description."""
        host, node_name = self._host, snapshot_id(name)
        with worded(f"Unable to take snapshot {name} of container {instance.name}"):
            guest = host.existing(instance, "take a snapshot of")
            mark = replace(mark_of(guest), snapshot=name)
            take_plainly(host, guest, node_name, marks.mark_text(guest.text, mark))
            entries = [entry for entry in listed(host, guest) if entry["name"] == node_name]
            taken = snapshots_of(entries, guest.vmid)
            if not taken:
                raise PveError("the node has taken it, and it is not there")
            return taken[0]

    def delete(self, instance: Instance, name: str) -> None:
        """Delete the snapshot; a missing one is success."""
        host, node_name = self._host, snapshot_id(name)
        with worded(f"Unable to delete snapshot {name} of container {instance.name}"):
            guest = host.owned(instance, "delete a snapshot of")
            if guest is not None and _entry_of(listed(host, guest), node_name) is not None:
                forget(host, guest, node_name)
                volumes.delete_unused_copies(host, guest.vmid)

    def rollback(self, instance: Instance, name: str) -> Instance:
        """Stop the container, make it what the snapshot holds, and start it again if it was running."""
        host, node_name = self._host, snapshot_id(name)
        with worded(f"Unable to roll container {instance.name} back to snapshot {name}"):
            guest = host.existing(instance, "roll back")
            text, mark = _require(host, guest, name, node_name)
            containers.stop_container(host, guest, ROLLBACK_STOP_S)
            try:
                restore = host.path(guest.vmid, "snapshot", node_name, "rollback")
                host.task(lambda: host.client.post(*restore), guest.name)
                _write_mark(host, guest, text, mark)
                volumes.delete_unused_copies(host, guest.vmid)
            except BaseException:
                with suppress(PveError, ProviderError):  # why the rollback failed is what has to be told
                    _run_again(host, guest)
                raise
            _run_again(host, guest)
            return host.seen(guest.vmid)

    def obstacle(self, instance: Instance) -> str:
        """What is mounted of the host, or the storage that remembers nothing."""
        host = self._host
        with worded(f"Unable to look at container {instance.name}"):
            guest = containers.find_container(host, instance)
            of_the_host = [
                f"{source} of the host is mounted at {path}"
                for source, path in translate.mounts_of_the_host(guest.config)
            ]
            if of_the_host:
                return "; ".join(of_the_host) + ": Proxmox takes no snapshot of such a container"
            if host.client.get(*host.path(guest.vmid, "feature"), feature="snapshot")["hasFeature"]:
                return ""
            types = _storage_types(host)
            names = sorted(_storages(guest.config))
            unfit = [name for name in names if types.get(name) not in CAN_SNAPSHOT]
            words = ", ".join(f"{name} ({types.get(name, 'unknown')})" for name in unfit or names)
            return f"its storage {words} takes no snapshots of containers"

    def is_newest_only(self, instance: Instance) -> bool:
        """Whether one of its disks is on a storage of that kind."""
        with worded(f"Unable to look at container {instance.name}"):
            guest = self._host.existing(instance, "look at")
            types = _storage_types(self._host)
            return any(types.get(name) == NEWEST_ONLY for name in _storages(guest.config))


def _run_again(host: ProxmoxHost, guest: Guest) -> None:
    if guest.status is Status.RUNNING:
        containers.start_container(host, host.now(guest.vmid))


def mark_of(guest: Guest) -> Mark:
    """The mark that it bears; ``ProviderError`` when there is none."""
    if guest.mark is None:
        raise ProviderError(f"Unable to use container {guest.name}", details="It bears no mark.")
    return guest.mark


def listed(host: ProxmoxHost, guest: Guest) -> list[Entry]:
    """Its snapshots as the API lists them, without what it is now."""
    entries: list[Entry] = host.client.get(*host.path(guest.vmid, "snapshot"))
    return [entry for entry in entries if entry["name"] != NOW]


def _entry_of(entries: Sequence[Entry], node_name: str) -> Entry | None:
    """The entry of a snapshot by the name that it has on the node; None when there is none."""
    for entry in entries:
        if entry["name"] == node_name:
            return entry
    return None


def take_plainly(host: ProxmoxHost, guest: Guest, node_name: str, description: str) -> None:
    """Take a snapshot of that very name, and wait for it; when the answer is lost, see whether it was taken."""
    before = _entry_of(listed(host, guest), node_name)
    form: dict[str, Any] = {"snapname": node_name, "description": description}
    try:
        host.task(lambda: host.client.post(*host.path(guest.vmid, "snapshot"), **form), guest.name)
    except PveError as error:
        if not error.lost or before is not None:
            raise
        host.settle(guest.vmid, guest.name)
        taken = _entry_of(listed(host, guest), node_name)
        if taken is None or "snapstate" in taken:
            raise


def forget(host: ProxmoxHost, guest: Guest, node_name: str) -> None:
    """Delete a snapshot of that very name, and wait for it."""
    try:
        host.task(lambda: host.client.delete(*host.path(guest.vmid, "snapshot", node_name)), guest.name)
    except PveError as error:
        if error.lost:
            host.settle(guest.vmid, guest.name)
        if _entry_of(listed(host, guest), node_name) is not None:
            raise


def _require(host: ProxmoxHost, guest: Guest, name: str, node_name: str) -> tuple[str, Mark]:
    """What the snapshot's description says; refuse one that is missing, lacks our mark, or is older than ZFS allows."""
    what = f"Unable to roll container {guest.name} back to snapshot {name}"
    entries = listed(host, guest)
    entry = _entry_of(entries, node_name)
    if entry is None:
        there = ", ".join(snapshot.name for snapshot in snapshots_of(entries, guest.vmid)) or "none"
        raise ProviderError(what, details="There is no such snapshot.", resolution=f"Snapshots there: {there}")
    text, mark = marks.read_mark(str(entry.get("description", "")), guest.vmid)
    if mark is None or mark.lab != guest.lab:
        details = f"It does not bear the mark of lab {guest.lab}: provision did not take it."
        raise ProviderError(what, details=details, resolution="Choose another snapshot.")
    newer = _newer(entries, node_name)
    if newer and NEWEST_ONLY in _types_of(host, guest, node_name):
        raise ProviderError(
            what,
            details=f"Its storage is ZFS, which goes back to the newest snapshot only; newer: {', '.join(newer)}",
            resolution="Delete the newer ones of this container first, or choose the newest.",
        )
    return text, mark


def _newer(entries: Sequence[Entry], node_name: str) -> list[str]:
    """The names of the snapshots that were taken after one, temporary ones, too, which are in the way as well."""
    ages: dict[str, int] = {}
    parents: dict[str, str] = {}
    for entry in entries:
        name = str(entry["name"])
        ages[name] = int(entry.get("snaptime", 0))
        parents[name] = str(entry.get("parent", ""))
    newer = []
    for name, age in ages.items():
        is_newer = age > ages[node_name] or node_name in _ancestors(name, parents)
        if is_newer and name != node_name:
            newer.append(name)
    return sorted(newer)


def _ancestors(name: str, parents: Mapping[str, str]) -> set[str]:
    """The snapshots before one, by what Proxmox says of which follows which, be it in a circle."""
    ancestors: set[str] = set()
    parent = parents.get(name, "")
    while parent and parent not in ancestors:
        ancestors.add(parent)
        parent = parents.get(parent, "")
    return ancestors


def _types_of(host: ProxmoxHost, guest: Guest, node_name: str) -> set[str]:
    config = options_of(host.client.get(*host.path(guest.vmid, "snapshot", node_name, "config")))
    types = _storage_types(host)
    return {types.get(name, "") for name in _storages(config)}


def _storage_types(host: ProxmoxHost) -> dict[str, str]:
    entries = host.client.get("nodes", host.client.node, "storage")
    return {str(entry["storage"]): str(entry["type"]) for entry in entries}


def _storages(config: Mapping[str, str]) -> set[str]:
    disks = {disk.storage for disk in translate.mounted_disks(config).values()}
    return (disks | {config.get("rootfs", "").partition(":")[0]}) - {""}


def _write_mark(host: ProxmoxHost, guest: Guest, text: str, mark: Mark) -> None:
    """The snapshot's mark on the container, which still has that of the state that was left."""
    now = host.config(guest.vmid)
    still_mounted = translate.mounted_volumes(now.config)
    discard = list(mark_of(guest).discard)
    for volume in translate.copy_volumes(guest):
        if volume not in still_mounted and volume not in discard:
            discard.append(volume)
    restored = replace(mark, snapshot="", discard=tuple(discard))
    description = marks.mark_text(text, restored)
    host.client.put(*host.path(guest.vmid, "config"), description=description, digest=now.digest)


# Clones of a container.


def clone_container(host: ProxmoxHost, guest: Guest, wanted: Instance) -> int:
    """Copy the container as it is now, under another name and number, with addresses of its own; the number."""
    if any(entry.get("name") == wanted.name for entry in host.entries()):
        raise ProviderError(
            f"Unable to clone container {guest.name} as {wanted.name}",
            details=f"Node {host.client.node} has a container {wanted.name}.",
        )
    with host.turn(guest.storage), _state_to_clone(host, guest) as state:

        def attempt(vmid: int) -> None:
            _clone_as(host, guest, wanted, vmid, state)

        vmid = create.create_numbered(host, replace(wanted, settings={}), attempt)
    try:
        card = guest.config.get("net0")
        config = host.config(vmid)
        if card and released_network(card) != card:
            net = released_network(config.config["net0"])
            host.client.put(*host.path(vmid, "config"), net0=net, digest=config.digest)
    except BaseException:  # an interruption, too, must not leave a copy that fights with its source over its address
        create.remove_failed(host, vmid, wanted)
        raise
    return vmid


@contextmanager
def _state_to_clone(host: ProxmoxHost, guest: Guest) -> Iterator[str]:
    """What is copied: a stopped container as it is (""), a running one by a snapshot that goes afterwards."""
    for snapshot in listed(host, guest):
        if str(snapshot["name"]).startswith(TEMPORARY):
            forget(host, guest, str(snapshot["name"]))  # a run that was killed has left it
    if guest.status is not Status.RUNNING:
        yield ""
        return
    kept = f"{TEMPORARY}{secrets.token_hex(4)}"
    try:
        take_plainly(host, guest, kept, "Only while a copy is made")
        yield kept
    finally:
        host.settle(guest.vmid, guest.name)
        if any(snapshot["name"] == kept for snapshot in listed(host, guest)):
            forget(host, guest, kept)


def _clone_as(host: ProxmoxHost, guest: Guest, wanted: Instance, vmid: int, state: str) -> None:
    mark = replace(mark_of(guest), vmid=vmid, mac=False, discard=(), snapshot="")
    form: dict[str, Any] = {
        "newid": vmid,
        "hostname": wanted.name,
        "description": marks.mark_text(guest.text, mark),
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
            create.remove_failed(host, vmid, wanted)
        raise
    except BaseException:
        create.interrupt_task(host, begun)
        host.settle(guest.vmid, wanted.name)
        create.remove_failed(host, vmid, wanted)
        raise
