"""What ``data/cluster/look.sh`` wrote on one node → ``NodeFacts``; pure.

A part that cannot be read is None or empty, and ``unread`` says so: nobody may take it for good. An answer that is cut
off is no answer: ``UnreadableError``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from provisioner.repair.answers import ABSENT, TIMED_OUT, Answer, UnreadableError, answers
from provisioner.repair.corosync_conf import read_corosync_conf
from provisioner.repair.corosync_log import read_log
from provisioner.repair.corosync_tools import NOT_QUORATE, Runtime, own_id, read_links, read_quorum, read_runtime
from provisioner.repair.facts import CorosyncConf, NodeFacts
from provisioner.repair.ha import read_ha
from provisioner.repair.pmxcfs_files import (
    is_open,
    read_guests,
    read_keys,
    read_known_hosts,
    read_members,
    read_references,
    read_storages,
    read_vmlist,
)

Part = TypeVar("Part")
AUTHKEY = "/etc/corosync/authkey"
PVE_CONF = "/etc/pve/corosync.conf"
LOCAL_CONF = "/etc/corosync/corosync.conf"
_ABSENT_FILE = "No such file or directory"


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
    return replace(known, has_copied_keys=bool(copied), unread={**seen.late(), **seen.unread})


def _has_copied_keys(answer: Answer) -> bool:
    return _required(answer).text.strip() not in ("", "0")


def _with_corosync(known: NodeFacts, seen: _Seen) -> NodeFacts:
    """What corosync's tools, its files and its log say."""
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
        links=read_links(seen["links"]),
        signatures=read_log(seen["journal"].lines, hosts, _moment(seen["now"]), own_id(seen["quorum"])),
    )


def _with_pmxcfs(known: NodeFacts, seen: _Seen) -> NodeFacts:
    """What stands in ``/etc/pve``."""
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
        references=read_references(storages, seen["ha-config"].lines, seen["replication"].lines),
        is_writable=is_open(seen["mode"], pmxcfs, known.units.get("pve-cluster", "")),
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """The sections, and the reasons why some could not be read."""

    answers: Mapping[str, Answer]
    unread: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Answer:
        return self.answers.get(name, ABSENT)

    def part(self, name: str, read: Callable[[Answer], Part]) -> Part | None:
        """What ``read`` makes of the section; None with the reason noted when it cannot."""
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
    """What ``grep`` found, be it nothing."""
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
