"""What stands in ``/etc/pve`` → values: ``.members``, ``.vmlist``, guests, storages, and who else names a node."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from provisioner.repair.answers import Answer, UnreadableError
from provisioner.repair.facts import Guest, Peer, Pmxcfs, Storage
from provisioner.values.plain_data import json_value

_GUEST = re.compile(r"= /etc/pve/nodes/([^/]+)/(lxc|qemu-server)/(\d{1,18})\.conf ([0-9a-f]{64})")
_NAME_KEYS = ("hostname", "name")
_NO_VOLUMES = ("none", "cdrom")
_SHARED_KINDS = frozenset({"cephfs", "cifs", "glusterfs", "iscsi", "iscsidirect", "nfs", "pbs", "rbd", "zfs"})
"""The kinds of storage that Proxmox VE takes as shared without being told ("ZFS over iSCSI" is ``zfs``)."""


def read_members(text: str) -> Pmxcfs:
    """``.members``; ``UnreadableError`` when it is not whole."""
    content = _json(text, ".members")
    try:
        cluster = content.get("cluster", {})
        return Pmxcfs(
            nodename=str(content["nodename"]),
            is_quorate=bool(cluster.get("quorate", 0)),
            cluster=str(cluster.get("name", "")),
            peers=tuple(_peer(name, peer) for name, peer in content.get("nodelist", {}).items()),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableError("Unable to read /etc/pve/.members", details=text[:200]) from error


def _peer(name: str, settings: Mapping[str, Any]) -> Peer:
    is_online = bool(settings.get("online", 0))
    return Peer(name, int(settings["id"]), str(settings.get("ip", "")), is_online)


def read_vmlist(text: str) -> Mapping[int, str]:
    """``.vmlist``: VMID → node."""
    content = _json(text, ".vmlist")
    try:
        return {int(vmid): str(guest["node"]) for vmid, guest in content.get("ids", {}).items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableError("Unable to read /etc/pve/.vmlist", details=text[:200]) from error


def read_guests(folders: Sequence[str], lines: Iterable[str]) -> Mapping[str, tuple[Guest, ...]]:
    """The guests of each folder of ``/etc/pve/nodes``, also of those that have none."""
    guests_by_node: dict[str, list[Guest]] = {name: [] for name in folders}
    for head, settings in _blocks(lines):
        guest = _guest(head, settings)
        guests_by_node.setdefault(guest.node, []).append(guest)
    for guests in guests_by_node.values():
        guests.sort(key=lambda guest: guest.vmid)
    return {node: tuple(guests) for node, guests in guests_by_node.items()}


def _guest(head: tuple[str, ...], settings: Mapping[str, str]) -> Guest:
    """The guest of one configuration: ``head`` is its node, folder, VMID and digest."""
    node, folder, vmid, digest = head
    kind: Literal["lxc", "qemu"] = "lxc" if folder == "lxc" else "qemu"
    name = settings.get("hostname") or settings.get("name", "")
    volumes = list[str]()
    for key, value in settings.items():
        volume = _volume(value)
        if volume and key not in _NAME_KEYS:
            volumes.append(volume)
    return Guest(int(vmid), node, kind, name, tuple(volumes), digest)


def read_storages(lines: Iterable[str]) -> tuple[Storage, ...]:
    """The storages of ``storage.cfg``."""
    storages = list[Storage]()
    for kind, name, settings in _stanzas(lines):
        is_shared = settings.get("shared", "") == "1" or kind in _SHARED_KINDS
        nodes = _names(settings.get("nodes", ""))
        storages.append(Storage(name, kind, is_shared, nodes))
    return tuple(storages)


def read_references(
    storages: Iterable[Storage], ha: Iterable[str], replication: Iterable[str]
) -> Mapping[str, tuple[str, ...]]:
    """Node → what names it, in words: storages that are limited to it, HA's groups and rules, replication jobs."""
    references = dict[str, list[str]]()
    for storage in storages:
        for node in storage.nodes:
            references.setdefault(node, []).append(f"storage {storage.name}")
    for kind, name, settings in _stanzas(ha):
        for entry in _names(settings.get("nodes", "")):
            node = entry.partition(":")[0]
            references.setdefault(node, []).append(f"HA {kind} {name}")
    for _, name, settings in _stanzas(replication):
        nodes = (settings.get("target", ""), settings.get("source", ""))
        for node in filter(None, nodes):
            references.setdefault(node, []).append(f"replication job {name}")
    return {node: tuple(dict.fromkeys(names)) for node, names in references.items()}


def read_keys(lines: Iterable[str]) -> tuple[str, ...]:
    """The nodes whose keys ``authorized_keys`` has: Proxmox VE's own end in ``root@NODE``."""
    return tuple(dict.fromkeys(line.partition("@")[2] for line in lines if line.startswith("root@")))


def read_known_hosts(lines: Iterable[str]) -> tuple[str, ...]:
    """The names and addresses whose host keys ``known_hosts`` has."""
    names = list[str]()
    for line in lines:
        names += filter(None, line.split(","))
    return tuple(dict.fromkeys(names))


def is_open(mode: Answer, pmxcfs: Pmxcfs | None, unit: str) -> bool:
    """Whether ``/etc/pve`` can be written: without quorum pmxcfs takes the owner's ``w`` from all it has."""
    if unit != "active":
        return False
    is_clustered = pmxcfs is not None and bool(pmxcfs.peers)
    if pmxcfs is not None and is_clustered and not pmxcfs.is_quorate:
        return False
    return _lets_owner_write(mode)


def _lets_owner_write(mode: Answer) -> bool:
    """Whether an answer of ``stat -c %a`` has the owner's ``w``."""
    if mode.code or not re.fullmatch("[0-7]{3,4}", mode.text):
        return False
    bits = int(mode.text, 8)
    return bool(bits & 0o200)


def _json(text: str, name: str) -> dict[str, Any]:
    try:
        content = json_value(text)
    except ValueError as error:
        raise UnreadableError(f"Unable to read /etc/pve/{name}", details=str(error)) from error
    if not isinstance(content, dict):
        raise UnreadableError(f"Unable to read /etc/pve/{name}", details=text[:200])
    return content


def _blocks(lines: Iterable[str]) -> Iterable[tuple[tuple[str, ...], dict[str, str]]]:
    """The guests' configurations as ``look.sh`` writes them: a headline for each file, and below it its settings."""
    head: tuple[str, ...] | None = None
    settings: dict[str, str] = {}
    for line in lines:
        if match := _GUEST.fullmatch(line):
            if head:
                yield head, settings
            head, settings = match.groups(), {}
        else:
            key, _, value = line.partition(":")
            settings[key] = value.strip()
    if head:
        yield head, settings


def _stanzas(lines: Iterable[str]) -> Iterable[tuple[str, str, dict[str, str]]]:
    """The blocks of a section config file: ``kind: name``, and below it indented settings."""
    stanzas: list[tuple[str, str, dict[str, str]]] = []
    settings: dict[str, str] = {}
    for line in lines:
        head = re.fullmatch(r"([a-z-]+): (\S+)\s*", line)
        if head is not None:
            settings = {}
            stanzas.append((head[1], head[2], settings))
            continue
        words = line.split(None, 1)
        if words:
            settings[words[0]] = words[1].strip() if len(words) > 1 else ""
    return stanzas


def _volume(value: str) -> str:
    """The volume that the value of a setting names; empty where it names none."""
    if ",media=cdrom" in value:
        return ""
    volume = value.partition(",")[0].removeprefix("volume=").removeprefix("file=")
    is_volume = ":" in volume and volume not in _NO_VOLUMES
    return volume if is_volume else ""


def _names(value: str) -> tuple[str, ...]:
    return tuple(filter(None, re.split(r"[,;\s]+", value)))
