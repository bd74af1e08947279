"""The memory of a node, and the storages on which a plan makes or enlarges disks. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from provisioner.providers.proxmox import rights
from provisioner.providers.proxmox.access import Access
from provisioner.providers.proxmox.node import Node, permitted, storages_of
from provisioner.providers.proxmox.review import place_of
from provisioner.providers.proxmox.rights import Place
from provisioner.providers.proxmox.translate import DEFAULT_DISK
from provisioner.values.capacity import UNKNOWN, Capacity, Disk, Pool
from provisioner.values.plan import Change
from provisioner.values.state import Instance

if TYPE_CHECKING:
    from provisioner.providers.proxmox.client import Client

THICK = "lvm"
"""The type of storage for containers that gives a disk its whole size at once."""


def capacity(client: Client, access: Access, changes: Sequence[Change]) -> Capacity:
    """Return the memory, 0 where it may not be seen, and the storages of new and larger disks.

    Copies of artifacts, which lie on disks of their own, are not among these.
    """
    page = partial(client.get, "nodes", client.node)
    entries, state = client.many([partial(page, "storage"), partial(permitted, partial(page, "status"), {})])
    node = Node(client.node, {}, storages=storages_of(entries))
    place = place_of(access, node)
    pools: dict[str, Pool] = {}
    for change in changes:
        for name, disk in _disks(change, place):
            if name not in pools:
                pools[name] = _pool(node, name)
            pools[name].disks.append(disk)
    return Capacity(int(state.get("memory", {}).get("total", 0)), tuple(pools.values()))


def _pool(node: Node, name: str) -> Pool:
    """Return the storage; that there is one is looked at by ``review``."""
    storage = node.storages.get(name)
    if storage is None or not storage.total:
        return Pool(name, UNKNOWN, UNKNOWN)
    return Pool(name, storage.total, storage.available, storage.kind != THICK)


def _disks(change: Change, place: Place) -> Iterator[tuple[str, Disk]]:
    """Yield the disks that are made or enlarged, each with the name of its storage."""
    after = change.after
    if not isinstance(after, Instance):
        return
    before = change.before if isinstance(change.before, Instance) else None
    old_sizes = _sizes(before) if before else {}
    for name, (path, size) in zip(rights.storages(after, place, before), _sizes(after).items(), strict=True):
        old_size = old_sizes.get(path, 0)
        if size > old_size:
            yield name, Disk(after.name, size, size - old_size)


def _sizes(container: Instance) -> dict[str, int]:
    """Return the sizes of a container's disks by their paths, its own one first."""
    sizes = {"/": container.disk or DEFAULT_DISK}
    for mount in container.settings.get("mounts", ()):
        sizes[mount["path"]] = mount["size"]
    return sizes
