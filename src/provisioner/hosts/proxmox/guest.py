"""A container as the API shows it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from ipaddress import ip_address
from typing import Any

from provisioner.hosts.proxmox import marks
from provisioner.hosts.proxmox.marks import Mark, Mount
from provisioner.values.state import Snapshot, Status

CARD = "eth0"
LAST_SECOND = 253_402_300_799
"""The end of the year 9999, the last one of a ``datetime``."""
NOW = "current"
"""The entry that Proxmox lists beside the snapshots."""
TEMPORARY = "provision-clone-"
"""How the names of snapshots begin that exist only while a copy is made."""

_ID = re.compile(r"[A-Za-z][A-Za-z0-9_-]{1,39}")
_RESERVED = frozenset({NOW, "vzdump", "pending"})
_NO_OPTIONS = ("digest", "description")
_STATUS = {"running": Status.RUNNING, "stopped": Status.STOPPED}
_UNFINISHED = frozenset({"create", "destroyed"})
"""Locks of containers that are only being made, or of which not all is left."""


@dataclass(frozen=True, slots=True)
class Guest:
    """One container; ``config`` are its options as text, what is pending until its next start included.

    ``text`` is what its user wrote into the description.
    """

    vmid: int
    config: Mapping[str, str]
    digest: str = ""
    text: str = ""
    mark: Mark | None = None
    status: Status = Status.STOPPED
    pool: str = ""
    snapshots: tuple[Snapshot, ...] = ()
    address: str | None = None

    @property
    def name(self) -> str:
        """Its host name, or what Proxmox shows where it has none."""
        return self.config.get("hostname") or f"CT{self.vmid}"

    @property
    def ungrown(self) -> Mapping[str, int]:
        """The disks that its mark calls ungrown."""
        return self.mark.ungrown if self.mark else {}

    @property
    def as_if_grown(self) -> Guest:
        """The same where every file system counts as grown with its disk."""
        return replace(self, mark=replace(self.mark, ungrown={})) if self.mark else self

    @property
    def lab(self) -> str:
        """The lab that it bears the mark of, or nothing."""
        return self.mark.lab if self.mark else ""

    @property
    def artifact_mounts(self) -> tuple[Mount, ...]:
        """The artifact volumes that its mark names."""
        return self.mark.volumes if self.mark else ()

    @property
    def storage(self) -> str:
        """The storage that its root file system is on."""
        return self.config.get("rootfs", "").partition(":")[0]


def options_of(config: Mapping[str, Any]) -> dict[str, str]:
    """The options of a configuration as text; raw ``lxc.*`` lines are none."""
    options: dict[str, str] = {}
    for name, value in config.items():
        is_option = isinstance(value, str | int | float)
        if is_option and name not in _NO_OPTIONS:
            options[name] = str(value)
    return options


def guest_of(vmid: int, config: Mapping[str, Any], entry: Mapping[str, Any], pool: str = "") -> Guest:
    """A container of its configuration and of what its node lists of it."""
    text, mark = marks.read_mark(str(config.get("description", "")), vmid)
    return Guest(vmid, options_of(config), str(config.get("digest", "")), text, mark, status_of(entry), pool)


def status_of(entry: Mapping[str, Any]) -> Status:
    """What a container is doing, from what its node lists of it."""
    if entry.get("lock") in _UNFINISHED:
        return Status.ERROR
    return _STATUS.get(str(entry.get("status")), Status.ERROR)


def pools_of(entries: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """The pools of those guests of the cluster that are in one, by their numbers."""
    pools: dict[int, str] = {}
    for entry in entries:
        if entry.get("pool"):
            pools[int(entry["vmid"])] = str(entry["pool"])
    return pools


def names_of(entries: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """The host names in a list of containers."""
    return frozenset(str(entry.get("name") or f"CT{entry['vmid']}") for entry in entries)


def snapshot_id(name: str) -> str:
    """The name that Proxmox gives a snapshot: the same where it may have it, else one made of it."""
    if _ID.fullmatch(name) and name not in _RESERVED:
        return name
    prefixed = f"s-{name}"
    if _ID.fullmatch(prefixed):
        return prefixed
    digest = sha256(name.encode()).hexdigest()
    return f"s-{digest[:24]}"


def snapshots_of(entries: Sequence[Mapping[str, Any]], vmid: int) -> tuple[Snapshot, ...]:
    """The snapshots of a container, the oldest first; two of one second by which follows which."""
    parents = {str(entry["name"]): str(entry.get("parent", "")) for entry in entries}
    snapshots: list[tuple[int, int, str, Snapshot]] = []
    for entry in entries:
        name = str(entry["name"])
        if name == NOW or name.startswith(TEMPORARY):
            continue
        snapshots.append((_second(entry), _depth(name, parents), name, _snapshot(entry, vmid)))
    snapshots.sort(key=lambda row: row[:3])
    return tuple(row[-1] for row in snapshots)


def _depth(name: str, parents: Mapping[str, str]) -> int:
    """How many snapshots stand before one; no more than there are, should Proxmox name parents in a circle."""
    depth = 0
    parent = parents.get(name, "")
    while parent and depth <= len(parents):
        depth += 1
        parent = parents.get(parent, "")
    return depth


def _snapshot(entry: Mapping[str, Any], vmid: int) -> Snapshot:
    _, mark = marks.read_mark(str(entry.get("description", "")), vmid)
    name = str(entry["name"])
    created = datetime.fromtimestamp(min(_second(entry), LAST_SECOND), UTC).isoformat()
    if mark is None:
        return Snapshot(name, created)
    is_of_this_name = snapshot_id(mark.snapshot) == name
    name_in_lab = mark.snapshot if is_of_this_name else name
    volumes = sorted(mount.volume for mount in mark.volumes)
    return Snapshot(name_in_lab, created, tuple(volumes))


def _second(entry: Mapping[str, Any]) -> int:
    """When a snapshot was made, in seconds since 1970."""
    return int(entry.get("snaptime") or 0)


def address_in(interfaces: Sequence[Mapping[str, Any]] | None, card: str = CARD, version: int = 4) -> str | None:
    """The address on a container's card that others can use, or None; never one that it gave itself."""
    for interface in interfaces or ():
        if interface.get("name") != card:
            continue
        for address in _addresses(interface):
            if _is_usable(address, version):
                return address
        return None
    return None


def _is_usable(text: str, version: int) -> bool:
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if address.version != version:
        return False
    return not (address.is_link_local or address.is_loopback or address.is_unspecified)


def _addresses(interface: Mapping[str, Any]) -> list[str]:
    """All addresses of an interface; what PVE 8 says of it has no list, but the last one of each family."""
    addresses = interface.get("ip-addresses")
    if addresses:
        return [str(address.get("ip-address", "")) for address in addresses]
    last_addresses = []
    for family in ("inet", "inet6"):
        if interface.get(family):
            address = str(interface[family]).partition("/")[0]
            last_addresses.append(address)
    return last_addresses
