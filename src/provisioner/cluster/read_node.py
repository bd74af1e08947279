"""Reads what ``data/cluster/look.sh`` wrote on one node → ``NodeFacts``; pure.

A part that cannot be read is None or empty, and ``unread`` says so: nobody may take it for good. An answer that is cut
off is no answer: ``UnreadableError``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, TypeVar

from provisioner.cluster.facts import (
    CorosyncConf,
    Guest,
    HaState,
    Member,
    NodeFacts,
    Peer,
    Pmxcfs,
    Storage,
    is_address,
    named,
    plain_name,
)
from provisioner.cluster.read_corosync import (
    ABSENT,
    NOT_QUORATE,
    TIMED_OUT,
    Answer,
    Runtime,
    UnreadableError,
    answers,
    own_id,
    read_corosync_conf,
    read_device_state,
    read_links,
    read_log,
    read_quorum,
    read_runtime,
)
from provisioner.cluster.references import read_guest_references
from provisioner.values.plain_data import json_value

Part = TypeVar("Part")
AUTHKEY = "/etc/corosync/authkey"
PVE_CONF = "/etc/pve/corosync.conf"
LOCAL_CONF = "/etc/corosync/corosync.conf"
_ABSENT_FILE = "No such file or directory"
_GUEST = re.compile(r"= /etc/pve/nodes/([^/]+)/(lxc|qemu-server)/(\d{1,18})\.conf ([0-9a-f]{64})")
_NAME_KEYS = ("hostname", "name")
_NO_VOLUMES = ("none", "cdrom")
_SHARED_KINDS = frozenset({"cephfs", "cifs", "glusterfs", "iscsi", "iscsidirect", "nfs", "pbs", "rbd", "zfs"})
"""The kinds of storage that Proxmox VE takes as shared without being told ("ZFS over iSCSI" is ``zfs``)."""
_SERVICE = re.compile(r"service (\S+) \(([^,)]+), ([^),]+)\)")
_NODE_IN_TROUBLE = re.compile(r"(?:lrm|node) \S+ \([^)]*\b(?:fence|gone|unknown)\b")
SETTLED = frozenset({"started", "stopped", "disabled", "ignored", "not found"})
"""The states in which HA does nothing with a service; all others are work that goes on, or an error.

``not found``: its guest does not exist, which stays so until somebody takes the service out of HA.
"""


def read_node(text: str, address: str, clock_offset_s: float = 0.0) -> NodeFacts:
    """The node that answered at ``address``; ``UnreadableError`` when the answer is cut off or has no host name."""
    seen = _Seen(answers(text))
    name = seen["hostname"].text.strip().partition(".")[0]
    if not name:
        raise UnreadableError("Unable to read what the node says of itself", details="It has no name.")
    known = NodeFacts(name, address, clock_offset_s=clock_offset_s)
    has_no_proxmox = seen["proxmox"].code not in (0, *TIMED_OUT)
    if has_no_proxmox:
        return replace(known, is_proxmox=False)
    version = seen["version"]
    interfaces = seen["addresses"].text
    known = replace(
        known,
        version="" if version.code else version.text.strip(),
        addresses=tuple(re.findall(r"inet6? ([0-9a-f.:]+)/", interfaces)),
        networks=tuple(re.findall(r"inet6? ([0-9a-f.:]+/\d+)", interfaces)),
        units=_units(seen["units"]),
    )
    copied = seen.part("way-in", _has_copied_keys)
    known = _with_corosync(known, seen)
    known = _with_pmxcfs(known, seen)
    member = member_name(known)
    if member != name:
        known = replace(known, name=member, hostname=name)
    return replace(known, has_copied_keys=bool(copied), unread={**seen.late(), **seen.unread})


def member_name(node: NodeFacts) -> str:
    """Return the name of the member that the node is: by id and address, which corosync goes by, and not by host name.

    By the first of its lists that has it. Without a running corosync its id is not known: then a name that is in the
    list counts, because an address may have been given to another node.
    """
    for members in (node.running, *(conf.members for conf in reversed(node.files))):
        own = named(members, node.name)
        there = [member for member in members if _is_at(member, node)]
        if own in there or (own is not None and node.nodeid is None):
            return node.name
        alike = [member for member in members if plain_name(member.name) == plain_name(node.name)]
        found = there or alike
        if len(found) == 1:
            return found[0].name
    return node.name


def _is_at(member: Member, node: NodeFacts) -> bool:
    """Return whether the node has the member's id, where its own is known, and one of the member's addresses."""
    if node.nodeid not in (None, member.nodeid):
        return False
    addresses = set(filter(is_address, member.addresses))
    if not addresses:  # the list has names in their place
        return node.nodeid is not None
    return not addresses.isdisjoint(node.addresses)


def _has_copied_keys(answer: Answer) -> bool:
    return _required(answer).text.strip() not in ("", "0")


def _with_corosync(known: NodeFacts, seen: _Seen) -> NodeFacts:
    """Return what corosync's tools, its files and its log say."""
    digests = _digests(seen["digests"], seen["pve-digest"])
    runtime = seen.part("cmap", lambda answer: read_runtime(_required(answer, known.units))) or Runtime()
    pve_conf = seen.part("pve-conf", lambda answer: _conf(answer, digests.get(PVE_CONF, "")))
    local_conf = seen.part("local-conf", lambda answer: _conf(answer, digests.get(LOCAL_CONF, "")))
    members = runtime.members
    conf = local_conf or pve_conf
    if not members and conf is not None:
        members = conf.members
    hosts = dict[str, int]()
    for member in members:
        hosts.update(dict.fromkeys(member.addresses, member.nodeid))
    nodeid = own_id(seen["quorum"])
    return replace(
        known,
        pve_conf=pve_conf,
        local_conf=local_conf,
        key_digest=digests.get(AUTHKEY, ""),
        running_version=runtime.version,
        running=runtime.members,
        joined=runtime.joined,
        departed=runtime.departed,
        heard=runtime.heard,
        quorum=seen.part("quorum", lambda answer: read_quorum(_required(answer, known.units, NOT_QUORATE))),
        device_state=read_device_state(seen["qdevice"]),
        links=seen.part("links", lambda answer: read_links(_required(answer, known.units))) or (),
        signatures=read_log(seen["journal"].lines, hosts, _moment(seen["now"]), nodeid),
        nodeid=nodeid,
    )


def _with_pmxcfs(known: NodeFacts, seen: _Seen) -> NodeFacts:
    """Return what stands in ``/etc/pve``."""
    pmxcfs = seen.part("members", lambda answer: read_members(_required(answer).text))
    storages = seen.part("storage", lambda answer: read_storages(_matched(answer).lines)) or ()
    folders = seen["folders"]
    guests = seen.part("guests", lambda answer: read_guests(_required(folders).lines, _required(answer).lines))
    known_hosts = seen["known-hosts"]
    return replace(
        known,
        database=seen.part("database", lambda answer: _database(_required(answer))),
        pmxcfs=pmxcfs,
        guests=guests or {},
        vmlist=seen.part("vmlist", lambda answer: read_vmlist(_required(answer).text)) or {},
        storages=storages,
        ha=seen.part("ha", lambda answer: read_ha(_required(answer).lines)),
        keys=read_keys(seen["keys"].lines),
        known_hosts=() if known_hosts.code else read_known_hosts(known_hosts.lines),
        guest_references=seen.part("guest-references", lambda answer: read_guest_references(_required(answer).lines))
        or (),
        references=read_references(storages, seen["ha-config"].lines, seen["replication"].lines),
        is_writable=is_open(seen["mode"], pmxcfs, known.units.get("pve-cluster", "")),
    )


@dataclass(slots=True)
class _Seen:
    """The sections, and the reasons why some could not be read."""

    answers: Mapping[str, Answer]
    unread: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Answer:
        return self.answers.get(name, ABSENT)

    def part(self, name: str, read: Callable[[Answer], Part]) -> Part | None:
        """Return what ``read`` makes of the section; None with the reason noted when it cannot."""
        try:
            return read(self[name])
        except UnreadableError as error:
            self.unread[name] = error.details or error.message
            return None

    def late(self) -> dict[str, str]:
        """The sections whose commands did not end in time, each with that reason."""
        return {name: answer.why for name, answer in self.answers.items() if answer.code in TIMED_OUT}


def _required(answer: Answer, units: Mapping[str, str] | None = None, also: int = 0) -> Answer:
    """The section, as one that has to be there: a tool of a corosync that is dead has nothing to say, and may.

    ``also``: another exit code with which it is there.
    """
    if answer.code in (0, also):
        return answer
    is_dead = units is not None and units.get("corosync") in ("inactive", "failed", "not-found")
    if is_dead and answer.code == 1:
        return answer
    raise UnreadableError("Unable to read it", details=answer.why)


def _matched(answer: Answer) -> Answer:
    """Return what ``grep`` found, be it nothing."""
    if answer.code == 1 or _ABSENT_FILE in answer.text:
        return answer
    return _required(answer)


def _database(answer: Answer) -> tuple[int, int]:
    """The version and mtime of the tree in pmxcfs's database, of the row that sqlite3 prints."""
    row = re.fullmatch(r"(\d{1,18})\|(\d{1,18})", answer.text.strip())
    if row is None:
        raise UnreadableError("Unable to read config.db", details=answer.text[:200] or "It has no version.")
    return int(row[1]), int(row[2])


def _conf(answer: Answer, digest: str) -> CorosyncConf | None:
    """A ``corosync.conf``; None where the file is not there."""
    if answer.code and _ABSENT_FILE in answer.text:
        return None  # an unclustered node has none
    return read_corosync_conf(_required(answer).text, digest)


def _digests(*found: Answer) -> Mapping[str, str]:
    """The digests of files by their paths, as ``sha256sum`` writes them."""
    text = "\n".join(answer.text for answer in found)
    rows = re.findall(r"^([0-9a-f]{64})\s+(\S+)$", text, re.MULTILINE)
    return {path: digest for digest, path in rows}


def _units(answer: Answer) -> Mapping[str, str]:
    """The states of the services that ``systemctl show`` told, a paragraph for each."""
    units = dict[str, str]()
    for paragraph in answer.text.split("\n\n"):
        properties = dict(re.findall(r"^(\w+)=(.*)$", paragraph, re.MULTILINE))
        if "Id" not in properties or "ActiveState" not in properties:
            continue
        unit = properties["Id"].removesuffix(".service")
        is_absent = properties.get("LoadState") == "not-found"
        units[unit] = "not-found" if is_absent else properties["ActiveState"]
    return units


def _moment(answer: Answer) -> datetime | None:
    """The node's own clock when its log was read; None where it did not say."""
    try:
        moment = datetime.fromisoformat(answer.text.strip())
    except ValueError:
        return None
    return moment if moment.tzinfo else None


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
    """Return whether ``/etc/pve`` can be written: without quorum pmxcfs takes the owner's ``w`` from all it has."""
    if unit != "active":
        return False
    is_clustered = pmxcfs is not None and bool(pmxcfs.peers)
    if pmxcfs is not None and is_clustered and not pmxcfs.is_quorate:
        return False
    if mode.code or not re.fullmatch("[0-7]{3,4}", mode.text):
        return False
    bits = int(mode.text, 8)
    return bool(bits & 0o200)


def _json(text: str, name: str) -> dict[str, Any]:
    """The file's JSON object; ``UnreadableError`` when it is none."""
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


def read_ha(lines: Sequence[str]) -> HaState:
    """Return what HA does; it is not idle while any service is in a state that is not settled, or a node is fenced."""
    services_by_node = dict[str, list[str]]()
    failed = list[str]()
    is_idle = True
    for line in lines:
        if _NODE_IN_TROUBLE.match(line):
            is_idle = False
        match = _SERVICE.match(line)
        if match is None:
            continue
        service, node, state = match.groups()
        services_by_node.setdefault(node.strip(), []).append(service)
        if state.strip() not in SETTLED:
            is_idle = False
        if state.strip() == "error":
            failed.append(service)
    services = {node: tuple(names) for node, names in services_by_node.items()}
    return HaState(is_idle, services, tuple(lines), tuple(failed))
