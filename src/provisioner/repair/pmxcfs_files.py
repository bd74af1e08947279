"""What stands in ``/etc/pve`` → values: ``.members``, ``.vmlist``, guests, storages, and who else names a node."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from provisioner.plain_data import json_value
from provisioner.repair.answers import Answer, UnreadableError
from provisioner.repair.facts import Guest, Peer, Pmxcfs, Storage

_GUEST = re.compile(r"= /etc/pve/nodes/([^/]+)/(lxc|qemu-server)/(\d{1,18})\.conf ([0-9a-f]{64})")
_NO_VOLUMES = ("none", "cdrom")
_SHARED_KINDS = frozenset({"cephfs", "cifs", "glusterfs", "iscsi", "iscsidirect", "nfs", "pbs", "rbd", "zfs"})
"""The kinds of storage that Proxmox VE takes as shared without being told ("ZFS over iSCSI" is ``zfs``)."""


def read_members(text: str) -> Pmxcfs:
    """``.members``; ``UnreadableError`` when it is not whole."""
    content = _json(text, ".members")
    cluster, peers = content.get("cluster", {}), content.get("nodelist", {})
    try:
        return Pmxcfs(
            nodename=str(content["nodename"]),
            is_quorate=bool(cluster.get("quorate", 0)),
            cluster=str(cluster.get("name", "")),
            peers=tuple(
                Peer(name, int(one["id"]), str(one.get("ip", "")), is_online=bool(one.get("online", 0)))
                for name, one in peers.items()
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableError("Unable to read /etc/pve/.members", details=text[:200]) from error


def read_vmlist(text: str) -> Mapping[int, str]:
    """``.vmlist``: VMID → node."""
    try:
        return {int(vmid): str(one["node"]) for vmid, one in _json(text, ".vmlist").get("ids", {}).items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableError("Unable to read /etc/pve/.vmlist", details=text[:200]) from error


def read_guests(folders: Sequence[str], lines: Iterable[str]) -> Mapping[str, tuple[Guest, ...]]:
    """The guests of each folder of ``/etc/pve/nodes``, also of those that have none."""
    found: dict[str, list[Guest]] = {name: [] for name in folders}
    for head, settings in _blocks(lines):
        node, folder, vmid, digest = head
        kind: Literal["lxc", "qemu"] = "lxc" if folder == "lxc" else "qemu"
        name = settings.pop("hostname", "") or settings.pop("name", "")
        volumes = tuple(volume for value in settings.values() if (volume := _volume(value)))
        found.setdefault(node, []).append(Guest(int(vmid), node, kind, name, volumes, digest))
    return {node: tuple(sorted(guests, key=lambda one: one.vmid)) for node, guests in found.items()}


def read_storages(lines: Iterable[str]) -> tuple[Storage, ...]:
    """The storages of ``storage.cfg``."""
    found = []
    for kind, name, settings in _stanzas(lines):
        shared = settings.get("shared", "") == "1" or kind in _SHARED_KINDS
        found.append(Storage(name, kind, shared, _names(settings.get("nodes", ""))))
    return tuple(found)


def read_references(
    storages: Iterable[Storage], ha: Iterable[str], replication: Iterable[str]
) -> Mapping[str, tuple[str, ...]]:
    """Node → what names it, in words: storages that are limited to it, HA's groups and rules, replication jobs."""
    found: dict[str, list[str]] = {}
    for storage in storages:
        for node in storage.nodes:
            found.setdefault(node, []).append(f"storage {storage.name}")
    for kind, name, settings in _stanzas(ha):
        for node in _names(settings.get("nodes", "")):
            found.setdefault(node.partition(":")[0], []).append(f"HA {kind} {name}")
    for _, name, settings in _stanzas(replication):
        for node in filter(None, (settings.get("target"), settings.get("source"))):
            found.setdefault(node, []).append(f"replication job {name}")
    return {node: tuple(dict.fromkeys(what)) for node, what in found.items()}


def read_keys(lines: Iterable[str]) -> tuple[str, ...]:
    """The nodes whose keys ``authorized_keys`` has: Proxmox VE's own end in ``root@NODE``."""
    return tuple(dict.fromkeys(line.partition("@")[2] for line in lines if line.startswith("root@")))


def read_known_hosts(lines: Iterable[str]) -> tuple[str, ...]:
    """The names and addresses whose host keys ``known_hosts`` has."""
    return tuple(dict.fromkeys(name for line in lines for name in line.split(",") if name))


def is_open(mode: Answer, pmxcfs: Pmxcfs | None, unit: str) -> bool:
    """Whether ``/etc/pve`` can be written: without quorum pmxcfs takes the owner's ``w`` from all it has."""
    is_clustered = bool(pmxcfs and pmxcfs.peers)
    bits = int(mode.text, 8) if not mode.code and re.fullmatch("[0-7]{3,4}", mode.text) else 0
    return unit == "active" and bool(bits & 0o200) and (not is_clustered or bool(pmxcfs and pmxcfs.is_quorate))


def _json(text: str, name: str) -> dict[str, Any]:
    try:
        content = json_value(text)
    except ValueError as error:
        raise UnreadableError(f"Unable to read /etc/pve/{name}", details=str(error)) from error
    if not isinstance(content, dict):
        raise UnreadableError(f"Unable to read /etc/pve/{name}", details=text[:200])
    return content


def _blocks(lines: Iterable[str]) -> Iterable[tuple[tuple[str, ...], dict[str, str]]]:
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
    found: list[tuple[str, str, dict[str, str]]] = []
    for line in lines:
        if match := re.fullmatch(r"([a-z-]+): (\S+)\s*", line):
            found.append((match[1], match[2], {}))
        elif found and (words := line.split(None, 1)):
            found[-1][2][words[0]] = words[1].strip() if len(words) > 1 else ""
    return found


def _volume(value: str) -> str:
    volume = value.partition(",")[0].removeprefix("volume=").removeprefix("file=")
    return "" if volume in _NO_VOLUMES or ":" not in volume or ",media=cdrom" in value else volume


def _names(value: str) -> tuple[str, ...]:
    return tuple(filter(None, re.split(r"[,;\s]+", value)))
