"""corosync's log → ``Signatures``: the lines that tell the kinds of stale node apart, as far as they still count.

"Packet rejected" is knet's: the sender's node id is known, and its address is not the one that is configured for its
link. A list that is only older never gives it: there corosync ends itself with "Received config version".

A log keeps what is over. So a line counts only until a later one contradicts it: a link to its sender came up, or the
membership changed. What nobody contradicts is told by its age.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from provisioner.repair.facts import Signatures

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
_NO_LINKS = re.compile(rf"host: host: ({_NUMBER}) has no active links")
_LINKED = re.compile(rf"host: ({_NUMBER}) link: {_NUMBER} is up|because host ({_NUMBER}) joined")
_MEMBERSHIP = re.compile(
    r"A new membership \(\S+\) was formed\. Members"
    rf"(?: joined:(?P<joined>(?: {_NUMBER})+))?(?: left:(?P<left>(?: {_NUMBER})+))?"
)


def read_log(
    lines: Iterable[str], hosts: Mapping[str, int] | None = None, now: datetime | None = None, own: int | None = None
) -> Signatures:
    """What the lines say that still holds, whatever stands before corosync's own words.

    ``hosts``: address → node id, by the node's lists. ``now``: the node's clock; without it, and for lines without a
    time, age is not known, and they count. ``own``: the node's own id; what it says of links to itself is nothing.
    """
    log = _Log(hosts or {}, own)
    for line in lines:
        log.take(line)
    return log.signatures(now)


def is_about(line: str, addresses: Iterable[str]) -> bool:
    """Whether the line tells of a packet from one of these addresses."""
    return any(f"from {address}:" in line or f"from [{address}]:" in line for address in addresses)


def age_s(line: str, now: datetime | None) -> float | None:
    """How old the line is; None where it, or the clock, has no time."""
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
    """What was read so far. ``known``: the ids that were ever spoken of; ``away``: id → those first spoken of since.

    ``is_whole``: it begins with corosync's start. ``has_ring``: the first membership was formed.
    """

    hosts: Mapping[str, int]
    own: int | None
    rejected: dict[str, _Packets] = field(default_factory=dict)
    undecryptable: dict[str, _Packets] = field(default_factory=dict)
    outdated: re.Match[str] | None = None
    unreachable: dict[int, str] = field(default_factory=dict)
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
            (_NO_LINKS, self._lost),
            (_LINKED, self._linked),
            (_MEMBERSHIP, self._formed),
        ):
            match = pattern.search(line)
            if match is not None:
                note(match)
                return

    def signatures(self, now: datetime | None) -> Signatures:
        """What of it holds now."""
        rejected = self._counting(self.rejected, now)
        undecryptable = self._counting(self.undecryptable, now)
        reformed = self._reformed(now)
        lines = [packets.line for packets in (*rejected.values(), *undecryptable.values())]
        outdated = None
        if self.outdated is not None:
            outdated = int(self.outdated[1]), int(self.outdated[2])
            lines.append(self.outdated.string)
        lines += [*self.unreachable.values(), *reformed[-1:]]
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
    """Whether the next membership is not overdue by much, by the time between the last two."""
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
