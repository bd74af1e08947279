"""Reads what ``look.sh`` answers of a node's corosync: its files, the output of its tools, and its log → values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import ip_address

from provisioner.cluster.facts import CorosyncConf, Device, Link, Member, Quorum, Signatures
from provisioner.values.errors import ProvisionError

_HEAD = re.compile(r"@ ([a-z-]+) (\d{1,3})")
DIGITS = 18
TIMED_OUT = (124, 137)
"""How ``timeout`` ends when the command did not."""
Settings = dict[str, str]
LINKS = 8
"""knet's most (``KNET_MAX_LINK``)."""
NOT_QUORATE = 2
"""``corosync-quorumtool``'s exit code without quorum; 1: it could not ask corosync at all."""
RECENT_S = 30.0
"""A node that is turned away sends a packet a second; one that was not heard for so long has stopped."""
WINDOW_S = 120.0
"""How far back memberships are counted that were formed anew: with corosync's usual token one every 10 s."""
_NUMBER = r"\d{1,18}"
"""As many digits as a node may write for one."""
_SENDER = rf"from \[?(?P<address>[0-9a-fA-F.:]+?)\]?:{_NUMBER}"
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[+-]\d\d:?\d\d|Z))\s")
_START = re.compile(r"Corosync Cluster Engine .*starting up")
_ENDING = re.compile(r"Unloading all Corosync service engines|Corosync Cluster Engine exiting")
_REJECTED = re.compile(rf"rx: Packet rejected {_SENDER}(?:\s|$)")
_UNDECRYPTABLE = re.compile(rf"rx: Unable to decrypt packet {_SENDER}\s")
_OUTDATED = re.compile(
    rf"Received config version \(({_NUMBER})\) is different than my config version \(({_NUMBER})\)! Exiting"
)
_PACKET_SIZE = re.compile(r"Incorrect packet size")
_NO_LINKS = re.compile(rf"host: host: ({_NUMBER}) has no active links")
_LINKED = re.compile(rf"host: ({_NUMBER}) link: {_NUMBER} is up|because host ({_NUMBER}) joined")
_MEMBERSHIP = re.compile(
    r"A new membership \(\S+\) was formed\. Members"
    rf"(?: joined:(?P<joined>(?: {_NUMBER})+))?(?: left:(?P<left>(?: {_NUMBER})+))?"
)


class UnreadableError(ProvisionError):
    """An answer that is not what the script writes: cut off, or from another program."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One section: how the command ended, and what it wrote."""

    code: int
    lines: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All lines."""
        return "\n".join(self.lines)

    @property
    def why(self) -> str:
        """The reason for which there is no answer, in a line; empty when there is one."""
        if not self.code:
            return ""
        if self.code in TIMED_OUT:
            return "it did not answer in time"
        lines = self.text.strip().splitlines()
        return lines[-1] if lines else f"exit code {self.code}"


def is_number(text: str) -> bool:
    """Return whether the text is a whole number of a usual size, which ``int`` takes."""
    return text.isdecimal() and len(text) <= DIGITS


ABSENT = Answer(127, ("the section is missing",))


def answers(text: str) -> Mapping[str, Answer]:
    """The sections by their names; ``UnreadableError`` unless all of it is there."""
    codes = dict[str, int]()
    lines_by_name = dict[str, list[str]]()
    lines = None
    for line in text.split("\n"):
        head = _HEAD.fullmatch(line)
        if head is not None:
            name, code = head.groups()
            lines = list[str]()
            codes[name] = int(code)
            lines_by_name[name] = lines
        elif lines is not None and line.startswith(" "):
            lines.append(line[1:])
        elif line:
            raise UnreadableError("Unable to read what the node says of itself", details=line[:200])
    if "end" not in codes:
        raise UnreadableError("Unable to read what the node says of itself", details="Its answer ends early.")
    return {name: Answer(code, tuple(lines_by_name[name])) for name, code in codes.items()}


def read_corosync_conf(text: str, digest: str = "") -> CorosyncConf:
    """Return what the file says; ``UnreadableError`` when it is cut off or has no version and no members."""
    told: Settings = {}
    members = list[Member]()
    for name, settings in _sections(text):
        if name == "nodelist.node":
            members.append(member_of(settings))
            continue
        number = f"[{settings.get('linknumber', '0')}]" if name == "totem.interface" else ""
        if name.startswith(("totem", "quorum")):
            for key, value in settings.items():
                told[f"{name}{number}.{key}"] = value
    version = told.pop("totem.config_version", "")
    if not is_number(version) or not members:
        raise _unreadable("There is no config_version or no nodelist in it.")
    return CorosyncConf(told.pop("totem.cluster_name", ""), int(version), tuple(members), digest, told)


def member_of(settings: Settings) -> Member:
    """One ``node`` of a ``nodelist``; corosync's own default is one vote, and a node without a name has its address."""
    addresses = list[str]()
    for number in range(LINKS):
        key = f"ring{number}_addr"
        if key in settings:
            addresses.append(settings[key])
    nodeid = settings.get("nodeid", "")
    votes = settings.get("quorum_votes", "1")
    if not is_number(nodeid) or not is_number(votes) or not addresses:
        raise _unreadable("A node of it lacks its nodeid or its address.")
    name = settings.get("name") or addresses[0]
    return Member(name, int(nodeid), int(votes), tuple(map(_as_written, addresses)))


def _as_written(address: str) -> str:
    """The address as programs write it, so that it can be compared: ``fd00:0::1`` is ``fd00::1``; a name stays."""
    try:
        return str(ip_address(address))
    except ValueError:
        return address


def _sections(text: str) -> Sequence[tuple[str, Settings]]:
    """The sections with their own settings, the name of a nested one after that of the section around it."""
    sections: list[tuple[str, Settings]] = []
    path: list[str] = []
    open_sections: list[Settings] = [{}]
    for full_line in text.splitlines():
        line = full_line.strip()
        if not line or line.startswith("#"):
            continue
        if line.endswith("{"):
            path.append(line[:-1].strip())
            settings: Settings = {}
            open_sections.append(settings)
            sections.append((".".join(path), settings))
        elif line == "}":
            if not path:
                raise _unreadable("It closes more than it opens.")
            path.pop()
            open_sections.pop()
        else:
            setting = re.match(r"([^:\s]+)\s*:\s*(.*)", line)
            if setting is None:
                raise _unreadable(line[:200])
            open_sections[-1][setting[1]] = setting[2]
    if path:
        raise _unreadable("It ends in the middle of a section.")
    return sections


def _unreadable(details: str) -> UnreadableError:
    return UnreadableError("Unable to read a corosync.conf", details=details)


@dataclass(frozen=True, slots=True)
class Runtime:
    """The running corosync by its own word: its version and nodelist, and the nodes that are or were joined, by id."""

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
    device = _device(answer.text, present.pop(0, None))  # node id 0 is the device
    needed = _number(values, "Quorum")
    expected = _number(values, "Expected votes")
    total = _number(values, "Total votes")
    is_quorate = values["Quorate"] == "Yes" and answer.code == 0
    votes_of_device = device.votes if device is not None else 0
    if sum(present.values()) + votes_of_device != total:
        raise UnreadableError("Unable to read corosync-quorumtool", details="Its membership is not whole.")
    flags = re.search(r"^Flags:\s+(.*)$", answer.text, re.MULTILINE)
    return Quorum(is_quorate, expected, total, needed, present, tuple(flags[1].split()) if flags else (), device)


def _device(text: str, votes: int | None) -> Device | None:
    """The device of the last row, with the flags that the node's own row has; None without such a row."""
    if votes is None:
        return None
    most = re.search(r"^\s*0\s+\d+\s+Qdevice \(votes (\d{1,18})\)", text, re.MULTILINE)
    state = re.search(r"^\s*\d+\s+\d+\s+((?:[A-Z]+,)+[A-Z]+)\s.*\(local\)", text, re.MULTILINE)
    return Device(votes, int(most[1]) if most else votes, state[1] if state else "")


def read_device_state(answer: Answer) -> str:
    """The state of a QDevice's daemon, by ``corosync-qdevice-tool -s``; why it says none, where it fails."""
    state = re.search(r"^State:\s+(\S.*)$", answer.text, re.MULTILINE)
    return state[1] if state else answer.why[:200]


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
    """The whole number of that name; ``UnreadableError`` without one."""
    if not is_number(values.get(name, "")):
        raise UnreadableError("Unable to read corosync-quorumtool", details=f"There is no {name!r} in it.")
    return int(values[name])


def read_log(
    lines: Iterable[str], hosts: Mapping[str, int] | None = None, now: datetime | None = None, own: int | None = None
) -> Signatures:
    """Return what the lines say that still holds, whatever stands before corosync's own words.

    A log keeps what is over. So a line counts only until a later one contradicts it: a link to its sender came up, or
    the membership changed. What nobody contradicts is told by its age.

    "Packet rejected" is knet's: the sender's node id is known, and its address is not the one that is configured for
    its link. A list that is only older never gives it: there corosync ends itself with "Received config version".

    ``hosts``: address → node id, by the node's lists. ``now``: the node's clock; without it, and for lines without a
    time, age is not known, and they count. ``own``: the node's own id; what it says of links to itself is nothing.
    """
    log = _Log(hosts or {}, own)
    for line in lines:
        log.take(line)
    return log.signatures(now)


def is_about(line: str, addresses: Iterable[str]) -> bool:
    """Return whether the line tells of a packet from one of these addresses."""
    return any(f"from {address}:" in line or f"from [{address}]:" in line for address in addresses)


def age_s(line: str, now: datetime | None) -> float | None:
    """Return how old the line is; None where it, or the clock, has no time."""
    match = _TIME.match(line.strip())
    if match is None or now is None:
        return None
    try:
        return (now - datetime.fromisoformat(match[1])).total_seconds()
    except ValueError:  # it is no date
        return None


@dataclass(slots=True)
class _Packets:
    """The packets of one sender: how many, and the last line about them."""

    count: int = 0
    line: str = ""


@dataclass(slots=True)
class _Log:
    """The lines read so far. ``known``: the ids that were ever spoken of; ``away``: id → those first spoken of since.

    ``is_whole``: it begins with corosync's start. ``has_ring``: the first membership was formed.
    """

    hosts: Mapping[str, int]
    own: int | None
    rejected: dict[str, _Packets] = field(default_factory=dict)
    undecryptable: dict[str, _Packets] = field(default_factory=dict)
    outdated: re.Match[str] | None = None
    unreachable: dict[int, str] = field(default_factory=dict)
    misfit: list[str] = field(default_factory=list)
    reformed: list[str] = field(default_factory=list)
    known: set[int] = field(default_factory=set)
    away: dict[int, set[int]] = field(default_factory=dict)
    unsure: set[int] = field(default_factory=set)
    is_whole: bool = False
    has_ring: bool = False
    is_ending: bool = False

    def take(self, line: str) -> None:
        """Take one line."""
        for pattern, note in (
            (_START, self._start),
            (_ENDING, self._end),
            (_REJECTED, self._reject),
            (_UNDECRYPTABLE, self._fail_to_decrypt),
            (_OUTDATED, self._outdate),
            (_PACKET_SIZE, self._misfit),
            (_NO_LINKS, self._lost),
            (_LINKED, self._linked),
            (_MEMBERSHIP, self._formed),
        ):
            match = pattern.search(line)
            if match is not None:
                note(match)
                return

    def signatures(self, now: datetime | None) -> Signatures:
        """Return what of it holds now."""
        rejected = self._counting(self.rejected, now)
        undecryptable = self._counting(self.undecryptable, now)
        reformed = self._reformed(now)
        lines = [packets.line for packets in (*rejected.values(), *undecryptable.values())]
        outdated = None
        if self.outdated is not None:
            outdated = int(self.outdated[1]), int(self.outdated[2])
            lines.append(self.outdated.string)
        lines += [*self.unreachable.values(), *self.misfit[-1:], *reformed[-1:]]
        newcomers = dict[int, frozenset[int]]()
        unchanged_since = frozenset[int]()
        if self.is_whole:
            newcomers = {host: frozenset(since) for host, since in self.away.items() if since}
            unchanged_since = frozenset(self.away.keys() - self.unsure)
        return Signatures(
            rejected={address: packets.count for address, packets in rejected.items()},
            undecryptable={address: packets.count for address, packets in undecryptable.items()},
            outdated=outdated,
            unreachable=frozenset(self.unreachable),
            lines=tuple(line.strip() for line in lines),
            ages=_ages({**rejected, **undecryptable}, now),
            reformed=len(reformed),
            newcomers=newcomers,
            unchanged_since=unchanged_since,
        )

    def _start(self, _match: re.Match[str]) -> None:
        """Forget what was read before: corosync started anew, and its links, senders and members did, too."""
        self.rejected.clear()
        self.undecryptable.clear()
        self.outdated = None
        self.misfit.clear()
        self.unreachable.clear()
        self.reformed.clear()
        self.known.clear()
        self.away.clear()
        self.unsure.clear()
        self.is_whole = True
        self.has_ring = False
        self.is_ending = False

    def _end(self, _match: re.Match[str]) -> None:
        self.is_ending = True

    def _reject(self, match: re.Match[str]) -> None:
        _count(self.rejected, match["address"], match.string)

    def _fail_to_decrypt(self, match: re.Match[str]) -> None:
        _count(self.undecryptable, match["address"], match.string)

    def _outdate(self, match: re.Match[str]) -> None:
        self.outdated = match

    def _misfit(self, match: re.Match[str]) -> None:
        """Note a packet that was made with another cipher or hash; its sender is not said."""
        self.misfit.append(match.string)

    def _lost(self, match: re.Match[str]) -> None:
        """Note that the last link to a node went down; what corosync says of links to itself is nothing."""
        host = int(match[1])
        if host != self.own:
            self._meet(host)
            self.unreachable[host] = match.string

    def _linked(self, match: re.Match[str]) -> None:
        """Note that a link to a node came up. While corosync unloads it says that of all links that it takes down."""
        if self.is_ending:
            return
        host = int(match[1] or match[2])
        self._meet(host)
        self.unreachable.pop(host, None)
        for address, owner in self.hosts.items():
            if owner == host:
                self.rejected.pop(address, None)
                self.undecryptable.pop(address, None)

    def _formed(self, match: re.Match[str]) -> None:
        """Note a membership; without a change of members it is only counted, as a ring does that never closes.

        A change contradicts what was said of senders and links before: they may have joined by now.
        """
        joined, left = _ids(match["joined"]), _ids(match["left"])
        if not joined and not left:
            self.reformed.append(match.string)
            return
        self.rejected.clear()
        self.undecryptable.clear()
        self.misfit.clear()
        self.reformed.clear()
        for host in joined:
            self._meet(host)
            self.unreachable.pop(host, None)
            self.away.pop(host, None)
        if not self.has_ring:
            self.away = {host: set() for host in self.known - joined if host != self.own}
            self.has_ring = True
            return
        if joined:
            self.unsure.update(self.away)
        self.unsure -= joined | left
        for host in left:
            self.away[host] = set()

    def _meet(self, host: int) -> None:
        """Note that corosync spoke of a node; a node unheard of before is new to all that are away."""
        if host in self.known:
            return
        self.known.add(host)
        if self.has_ring:
            for since in self.away.values():
                since.add(host)

    def _counting(self, senders: Mapping[str, _Packets], now: datetime | None) -> dict[str, _Packets]:
        """The senders that count: of those that are in no list only the ones that were heard just now."""
        counting = dict[str, _Packets]()
        for address, packets in senders.items():
            age = age_s(packets.line, now)
            if address in self.hosts or age is None or age <= RECENT_S:
                counting[address] = packets
        return counting

    def _reformed(self, now: datetime | None) -> list[str]:
        """The memberships that were formed without anybody joining or leaving, while that goes on."""
        if self.is_ending:
            return []
        ages = list[float]()
        recent = list[str]()
        for line in self.reformed:
            age = age_s(line, now)
            if age is None:
                return list(self.reformed)
            ages.append(age)
            if age <= WINDOW_S:
                recent.append(line)
        return recent if _is_going_on(ages) else []


def _is_going_on(ages: Sequence[float]) -> bool:
    """Return whether the next membership is not overdue by much, by the time between the last two."""
    if len(ages) < 2:  # noqa: PLR2004 - one and another
        return False
    last, before = ages[-1], ages[-2]
    return last <= 2 * (before - last) + 5


def _ages(senders: Mapping[str, _Packets], now: datetime | None) -> dict[str, float]:
    """By address how old the last packet is, where that is known."""
    ages = dict[str, float]()
    for address, packets in senders.items():
        age = age_s(packets.line, now)
        if age is not None:
            ages[address] = age
    return ages


def _count(packets: dict[str, _Packets], address: str, line: str) -> None:
    of_sender = packets.setdefault(address, _Packets())
    of_sender.count += 1
    of_sender.line = line


def _ids(words: str | None) -> set[int]:
    return set(map(int, (words or "").split()))
