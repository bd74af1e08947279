"""What ``corosync-quorumtool -s``, ``corosync-cfgtool -s`` and ``corosync-cmapctl`` write → values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from provisioner.repair.answers import Answer, UnreadableError, is_number
from provisioner.repair.corosync_conf import member_of
from provisioner.repair.facts import Link, Member, Quorum

NOT_QUORATE = 2
"""``corosync-quorumtool``'s exit code without quorum; 1: it could not ask corosync at all."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """What the running corosync says: its version and nodelist, and the nodes that are or were joined, by id."""

    version: int | None = None
    cluster: str = ""
    members: tuple[Member, ...] = ()
    joined: Mapping[int, int] = field(default_factory=dict)
    departed: Mapping[int, int] = field(default_factory=dict)
    heard: Mapping[int, str] = field(default_factory=dict)


def read_quorum(answer: Answer) -> Quorum | None:
    """Its partition and votes; None when corosync does not answer. ``UnreadableError``: it wrote something else."""
    if answer.code not in (0, NOT_QUORATE):
        return None
    values = dict(re.findall(r"^([A-Z][A-Za-z ]+):\s+(\S+)", answer.text, re.MULTILINE))
    if values.get("Quorate") not in ("Yes", "No"):
        raise UnreadableError("Unable to read corosync-quorumtool", details=answer.text[-200:])
    rows = re.findall(r"^\s*(\d{1,18})\s+(\d{1,18})\s+\S", answer.text, re.MULTILINE)
    present = {int(nodeid): int(votes) for nodeid, votes in rows}
    needed, expected, total = (_number(values, one) for one in ("Quorum", "Expected votes", "Total votes"))
    is_quorate = values["Quorate"] == "Yes" and answer.code == 0
    if sum(present.values()) != total:  # a quorum device is a row, too: node id 0
        raise UnreadableError("Unable to read corosync-quorumtool", details="Its membership is not whole.")
    return Quorum(is_quorate, expected, total, needed, present)


def own_id(answer: Answer) -> int | None:
    """The node's own id, by ``corosync-quorumtool -s``."""
    match = re.search(r"^Node ID:\s+(?:0x([0-9a-f]{1,16})|(\d{1,18}))\s*$", answer.text, re.MULTILINE)
    if match is None:
        return None
    return int(match[1], 16) if match[1] else int(match[2])


def read_links(answer: Answer) -> tuple[Link, ...]:
    """The links to the other nodes; none when corosync does not answer."""
    if answer.code:
        return ()
    number, links = 0, list[Link]()
    for line in answer.lines:
        if head := re.match(r"LINK ID (\d{1,18})", line):
            number = int(head[1])
        elif (state := re.match(r"\s+nodeid:\s+(\d{1,18}):\s+(\w+)", line)) and state[2] != "localhost":
            links.append(Link(int(state[1]), number, state[2] == "connected"))
    return tuple(links)


def read_runtime(answer: Answer) -> Runtime:
    """The running configuration; all empty when corosync does not answer. ``UnreadableError``: it is cut off."""
    if answer.code:
        return Runtime()
    values = dict(re.findall(r"^(\S+) \(\w+\) = (.*)$", answer.text, re.MULTILINE))
    version = values.get("totem.config_version", "")
    if not is_number(version):
        raise UnreadableError("Unable to read corosync-cmapctl", details="There is no totem.config_version in it.")
    members = tuple(member_of(one) for _, one in sorted(_numbered("nodelist.node", values).items()))
    seen = _numbered("runtime.members", values)
    told = {number: one.get("config_version", "") for number, one in seen.items()}
    versions = {number: int(one) for number, one in told.items() if is_number(one)}
    joined = {number for number, one in seen.items() if one.get("status") == "joined"}
    addresses = {number: re.findall(r"ip\(([^)]+)\)", one.get("ip", "")) for number, one in seen.items()}
    return Runtime(
        version=int(version),
        cluster=values.get("totem.cluster_name", ""),
        members=members,
        joined={number: versions[number] for number in versions if number in joined},
        departed={number: versions[number] for number in versions if number not in joined},
        heard={number: found[0] for number, found in addresses.items() if found},
    )


def _numbered(prefix: str, values: Mapping[str, str]) -> dict[int, dict[str, str]]:
    found: dict[int, dict[str, str]] = {}
    for key, value in values.items():
        if match := re.fullmatch(re.escape(prefix) + r"\.(\d{1,18})\.(\w+)", key):
            found.setdefault(int(match[1]), {})[match[2]] = value.strip()
    return found


def _number(values: Mapping[str, str], name: str) -> int:
    if not is_number(values.get(name, "")):
        raise UnreadableError("Unable to read corosync-quorumtool", details=f"There is no {name!r} in it.")
    return int(values[name])
