"""What a node offers to containers: its storages, bridges and pools, and whether its cluster may be changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from provisioner.providers.proxmox.failures import PveError

if TYPE_CHECKING:
    from provisioner.providers.proxmox.client import Client

DISKS = "rootdir"
TEMPLATES = "vztmpl"
VNET = "vnet"


@dataclass(frozen=True, slots=True)
class Storage:
    """One storage as the node sees it; ``is_usable``: enabled, for this node, and there."""

    name: str
    kind: str
    content: frozenset[str]
    is_usable: bool
    available: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Node:
    """A node and its cluster, as far as whoever asks may see them.

    ``members``: the cluster's nodes and whether each is there. ``is_quorate``: None for a node alone, or not told.
    """

    name: str
    members: Mapping[str, bool]
    is_quorate: bool | None = None
    storages: Mapping[str, Storage] = field(default_factory=dict)
    bridges: Mapping[str, str] = field(default_factory=dict)
    pools: frozenset[str] = frozenset()
    guests: tuple[Mapping[str, Any], ...] = ()

    @property
    def is_online(self) -> bool:
        """Whether the node is one of its cluster, and there."""
        return self.members.get(self.name, False)

    @property
    def disk_storages(self) -> list[str]:
        """The names of the usable storages on which disks of guests may lie."""
        names = []
        for storage in self.storages.values():
            takes_disks = storage.content & {DISKS, "images"}
            if storage.is_usable and takes_disks:
                names.append(storage.name)
        return sorted(names)

    def storages_for(self, content: str) -> list[Storage]:
        """The usable storages that take ``content``, by name."""
        fit = [storage for storage in self.storages.values() if storage.is_usable and content in storage.content]
        fit.sort(key=lambda storage: storage.name)
        return fit


def look(client: Client, *, pools: bool = False, guests: bool = False) -> Node:
    """The node; ``pools`` and ``guests`` (those of the whole cluster) only when they are asked for."""
    members, is_quorate = cluster(client)
    name = client.node
    if not members.get(name, False):
        return Node(name, members, is_quorate)
    calls: list[Callable[[], Any]] = [
        partial(client.get, "nodes", name, "storage"),
        partial(client.get, "nodes", name, "network", type="any_bridge"),
        partial(client.get, "pools") if pools else list,
        partial(client.get, "cluster", "resources", type="vm") if guests else list,
    ]
    storages, bridges, known_pools, known_guests = client.many(calls)
    return Node(
        name,
        members,
        is_quorate,
        storages=storages_of(storages),
        bridges={entry["iface"]: str(entry["type"]) for entry in bridges},
        pools=frozenset(entry["poolid"] for entry in known_pools),
        guests=tuple(known_guests),
    )


def permitted(call: Callable[[], Any], otherwise: Any) -> Any:
    """What a call gives; ``otherwise`` where whoever asks may not see it."""
    try:
        return call()
    except PveError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return otherwise


def cluster(client: Client) -> tuple[dict[str, bool], bool | None]:
    """The nodes and whether each is there; whether they have quorum (None: a node alone, or it may not be seen)."""
    entries = permitted(partial(client.get, "cluster", "status"), None)
    members: dict[str, bool] = {}
    if entries is None:
        for entry in client.get("nodes"):
            members[entry["node"]] = entry.get("status") == "online"
        return members, None
    is_quorate = None
    for entry in entries:
        if entry["type"] == "node":
            members[entry["name"]] = bool(entry.get("online"))
        elif entry["type"] == "cluster":
            is_quorate = bool(entry.get("quorate"))
    return members, is_quorate


def storages_of(entries: Iterable[Mapping[str, Any]]) -> dict[str, Storage]:
    """Return the storages of a node by their names."""
    return {entry["storage"]: _storage(entry) for entry in entries}


def _storage(entry: Mapping[str, Any]) -> Storage:
    is_enabled = bool(entry.get("enabled", 1))
    is_there = bool(entry.get("active", 1))
    return Storage(
        entry["storage"],
        str(entry.get("type")),
        content=frozenset(str(entry.get("content", "")).split(",")),
        is_usable=is_enabled and is_there,
        available=int(entry.get("avail") or 0),
        total=int(entry.get("total") or 0),
    )
