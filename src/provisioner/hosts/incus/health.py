"""Facts about an Incus host for ``doctor``, and its memory and pools for a plan. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from provisioner.hosts.incus import api, machine
from provisioner.hosts.incus.api import Client, WireError
from provisioner.hosts.incus.translate import is_root
from provisioner.values.errors import UnavailableError
from provisioner.values.host_facts import (
    UNKNOWN,
    BridgeState,
    Capacity,
    Disk,
    HostAnswers,
    HostFact,
    HostVersion,
    ImageState,
    Pool,
    StorageRoom,
)
from provisioner.values.plan import Change
from provisioner.values.state import Instance


def examine(
    host: str, client: Client, profile: str, pool: Callable[[], str], images: Collection[str]
) -> tuple[HostFact, ...]:
    """What was seen; a host that does not answer, or does not let us in, is a fact, too."""
    here: tuple[HostFact, ...] = ()
    if not client.endpoint.is_remote:
        here = tuple(machine.without_incus(host, Path(client.endpoint.address).parent))
    try:
        with api.reachable(client.endpoint):
            seen = tuple(_seen(host, client, profile, pool, images))
    except UnavailableError as error:
        return (HostAnswers(host, error.message, error.resolution, error.details), *here)
    return (HostAnswers(host), *here, *seen)


def _seen(
    host: str, client: Client, profile: str, pool_name: Callable[[], str], images: Collection[str]
) -> Iterator[HostFact]:
    server = client.get()
    api.require_trust(client.endpoint, server)
    yield HostVersion(host, "Incus", server["environment"]["server_version"])
    pool = pool_name()
    space = client.get("storage-pools", pool, "resources").get("space", {})
    total = int(space.get("total", 0))
    if total:  # not every kind of pool says
        free = total - int(space.get("used", 0))
        hint = (
            f"What takes it: incus storage info {pool}. Delete snapshots that are not needed (provision snapshot "
            f"--list), or enlarge it: incus storage set {pool} size=<more>GiB"
        )
        yield StorageRoom(host, pool, "disks", free, total, enlarge=hint)
    there = {alias["name"] for alias in client.get("images", "aliases", recursion="1")}
    for image in sorted(images):
        hint = client.endpoint.prepare(f" --image {image}")
        yield ImageState(host, image, "there" if image in there else "missing", hint)
    yield from _network(host, client, profile)


def _network(host: str, client: Client, profile: str) -> Iterator[HostFact]:
    """The network that the profile's network card is on, made by Incus or by somebody else, and who gets through it."""
    hint = client.endpoint.prepare()
    page = client.get("profiles", profile)
    card = next((device for device in page["devices"].values() if device.get("type") == "nic"), None)
    if card is None:
        yield BridgeState(host, "", f"profile {profile} has no network card", hint)
        return
    name = card.get("network") or card.get("parent") or ""
    network = client.find("networks", name)
    yield BridgeState(host, name, "" if network is not None else f"there is no bridge {name}", hint)
    if network is None or client.endpoint.is_remote:
        return
    yield machine.names(host, name, network)
    yield machine.forwarding(host, name, machine.ruleset())
    yield machine.proxy(host, profile, page.get("config", {}))


# Capacity for a plan: the memory of an Incus, and the pools in which disks are made or enlarged.


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
        pool = pools.get(name) or _pool(client, name)
        pools[name] = pool.with_disk(Disk(after.name, after.disk or 0, change.disk_growth))
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
