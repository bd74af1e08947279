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
    needed = _number(values, "Quorum")
    expected = _number(values, "Expected votes")
    total = _number(values, "Total votes")
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
    number = 0
    links = list[Link]()
    for line in answer.lines:
        head = re.match(r"LINK ID (\d{1,18})", line)
        if head is not None:
            number = int(head[1])
            continue
        state = re.match(r"\s+nodeid:\s+(\d{1,18}):\s+(\w+)", line)
        if state is not None and state[2] != "localhost":
            is_connected = state[2] == "connected"
            links.append(Link(int(state[1]), number, is_connected))
    return tuple(links)


def read_runtime(answer: Answer) -> Runtime:
    """The running configuration; all empty when corosync does not answer. ``UnreadableError``: it is cut off."""
    if answer.code:
        return Runtime()
    values = dict(re.findall(r"^(\S+) \(\w+\) = (.*)$", answer.text, re.MULTILINE))
    version = values.get("totem.config_version", "")
    if not is_number(version):
        raise UnreadableError("Unable to read corosync-cmapctl", details="There is no totem.config_version in it.")
    listed = _numbered("nodelist.node", values)
    joined = dict[int, int]()
    departed = dict[int, int]()
    heard = dict[int, str]()
    for nodeid, member in _numbered("runtime.members", values).items():
        member_version = member.get("config_version", "")
        if is_number(member_version):
            versions = joined if member.get("status") == "joined" else departed
            versions[nodeid] = int(member_version)
        address = re.search(r"ip\(([^)]+)\)", member.get("ip", ""))
        if address is not None:
            heard[nodeid] = address[1]
    return Runtime(
        version=int(version),
        cluster=values.get("totem.cluster_name", ""),
        members=tuple(member_of(listed[number]) for number in sorted(listed)),
        joined=joined,
        departed=departed,
        heard=heard,
    )


def _numbered(prefix: str, values: Mapping[str, str]) -> dict[int, dict[str, str]]:
    """The settings below ``prefix``, by the number that follows it."""
    settings_by_number = dict[int, dict[str, str]]()
    pattern = re.compile(re.escape(prefix) + r"\.(\d{1,18})\.(\w+)")
    for key, value in values.items():
        match = pattern.fullmatch(key)
        if match is not None:
            settings = settings_by_number.setdefault(int(match[1]), {})
            settings[match[2]] = value.strip()
    return settings_by_number


def _number(values: Mapping[str, str], name: str) -> int:
    if not is_number(values.get(name, "")):
        raise UnreadableError("Unable to read corosync-quorumtool", details=f"There is no {name!r} in it.")
    return int(values[name])
