"""The memory of an Incus, and the pools in which a plan makes or enlarges disks. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from provisioner.providers.incus.client import Client
from provisioner.providers.incus.translate import is_root
from provisioner.providers.incus.wire import WireError
from provisioner.values.capacity import UNKNOWN, Capacity, Disk, Pool
from provisioner.values.plan import Change
from provisioner.values.state import Instance


def capacity(client: Client, pool_of_new: str, changes: Sequence[Change]) -> Capacity:
    """Return the memory, and the pools of new disks, and of larger ones, which stay in the pool where they are."""
    memory = _permitted(client, "resources").get("memory", {})
    pools: dict[str, Pool] = {}
    for change in changes:
        after = change.after
        if not isinstance(after, Instance) or change.disk_growth <= 0:
            continue
        name = pool_of_new
        if change.action == "update":
            devices = client.get("instances", after.name)["expanded_devices"].values()
            name = next(str(device["pool"]) for device in devices if is_root(device))
        if name not in pools:
            pools[name] = _pool(client, name)
        pools[name].disks.append(Disk(after.name, after.disk or 0, change.disk_growth))
    return Capacity(int(memory.get("total", 0)), tuple(pools.values()))


def _pool(client: Client, name: str) -> Pool:
    """Return the pool; not every kind says how large it is."""
    space = _permitted(client, "storage-pools", name, "resources").get("space", {})
    total = int(space.get("total", 0)) or UNKNOWN
    page = _permitted(client, "storage-pools", name)
    kind = page.get("driver", "")
    has_thin_pool = page.get("config", {}).get("lvm.use_thinpool", "true")
    is_thin = (kind, has_thin_pool) != ("lvm", "false") and kind != "lvmcluster"
    return Pool(name, total, total - int(space.get("used", 0)), is_thin)


def _permitted(client: Client, *path: str) -> Mapping[str, Any]:
    """Return what Incus says of the thing; nothing where a certificate that is limited to projects may not ask."""
    try:
        found: Mapping[str, Any] = client.get(*path)
    except WireError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return {}
    return found
