"""What a node offers to containers: its storages, bridges and pools, and whether its cluster may be changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
        fit = [one for one in self.storages.values() if one.is_usable and one.content & {DISKS, "images"}]
        return sorted(one.name for one in fit)

    def storages_for(self, content: str) -> list[Storage]:
        """The usable storages that take ``content``, by name."""
        return [one for _, one in sorted(self.storages.items()) if one.is_usable and content in one.content]


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
        {one["storage"]: _storage(one) for one in storages},
        {one["iface"]: str(one["type"]) for one in bridges},
        frozenset(one["poolid"] for one in known_pools),
        tuple(known_guests),
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
    found = permitted(partial(client.get, "cluster", "status"), None)
    if found is None:
        return {one["node"]: one.get("status") == "online" for one in client.get("nodes")}, None
    members = {one["name"]: bool(one.get("online")) for one in found if one["type"] == "node"}
    quorate = [bool(one.get("quorate")) for one in found if one["type"] == "cluster"]
    return members, quorate[0] if quorate else None


def _storage(found: Mapping[str, Any]) -> Storage:
    is_usable = bool(found.get("enabled", 1)) and bool(found.get("active", 1))
    content = frozenset(str(found.get("content", "")).split(","))
    room = (int(found.get(key) or 0) for key in ("avail", "total"))
    return Storage(found["storage"], str(found.get("type")), content, is_usable, *room)
