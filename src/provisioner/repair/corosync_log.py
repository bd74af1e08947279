"""corosync's log → ``Signatures``: the lines that tell the kinds of stale node apart.

"Packet rejected" is knet's: the sender's node id is known, and its address is not the one that is configured for its
link. A list that is only older never gives it: there corosync ends itself with "Received config version".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from provisioner.repair.facts import Signatures

_SENDER = r"from \[?(?P<address>[0-9a-fA-F.:]+?)\]?:\d+"
_START = re.compile(r"Corosync Cluster Engine .*starting up")
_REJECTED = re.compile(rf"rx: Packet rejected {_SENDER}(?:\s|$)")
_UNDECRYPTABLE = re.compile(rf"rx: Unable to decrypt packet {_SENDER}\s")
_OUTDATED = re.compile(r"Received config version \((\d+)\) is different than my config version \((\d+)\)! Exiting")
_NO_LINKS = re.compile(r"host: host: (\d+) has no active links")
_LINKED = re.compile(r"host: (\d+) link: \d+ is up|because host (\d+) joined")


def read_log(lines: Iterable[str]) -> Signatures:
    """What the lines say since corosync last started, whatever stands before corosync's own words."""
    rejected, undecryptable = Counter[str](), Counter[str]()
    outdated: tuple[int, int] | None = None
    unreachable: set[int] = set()
    last: dict[str, str] = {}
    for line in lines:
        if _START.search(line):
            for one in (rejected, undecryptable, unreachable, last):
                one.clear()
            outdated = None
        elif match := _REJECTED.search(line):
            rejected[match["address"]] += 1
            last[f"rejected {match['address']}"] = line
        elif match := _UNDECRYPTABLE.search(line):
            undecryptable[match["address"]] += 1
            last[f"undecryptable {match['address']}"] = line
        elif match := _OUTDATED.search(line):
            outdated = (int(match[1]), int(match[2]))
            last["outdated"] = line
        elif match := _NO_LINKS.search(line):
            unreachable.add(int(match[1]))
            last[f"links {match[1]}"] = line
        elif match := _LINKED.search(line):
            number = int(match[1] or match[2])
            unreachable.discard(number)
            last.pop(f"links {number}", None)
    lines_kept = tuple(line.strip() for line in last.values())
    return Signatures(dict(rejected), dict(undecryptable), outdated, frozenset(unreachable), lines_kept)


def is_about(line: str, addresses: Iterable[str]) -> bool:
    """Whether the line tells of a packet from one of these addresses."""
    return any(f"from {one}:" in line or f"from [{one}]:" in line for one in addresses)
