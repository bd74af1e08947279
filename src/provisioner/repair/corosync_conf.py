"""``corosync.conf`` → ``CorosyncConf``: sections in braces, ``key: value``, ``#`` comments."""

from __future__ import annotations

import re
from collections.abc import Sequence

from provisioner.repair.answers import UnreadableError, is_number
from provisioner.repair.facts import CorosyncConf, Member

Settings = dict[str, str]
LINKS = 8
"""knet's most (``KNET_MAX_LINK``)."""


def read_corosync_conf(text: str, digest: str = "") -> CorosyncConf:
    """What the file says; ``UnreadableError`` when it is cut off or has no version and no members."""
    sections = _sections(text)
    totem = {key: value for name, one in sections if name == "totem" for key, value in one.items()}
    members = tuple(member_of(one) for name, one in sections if name == "nodelist.node")
    version = totem.get("config_version", "")
    if not is_number(version) or not members:
        raise _unreadable("There is no config_version or no nodelist in it.")
    return CorosyncConf(totem.get("cluster_name", ""), int(version), members, digest)


def member_of(settings: Settings) -> Member:
    """One ``node`` of a ``nodelist``; corosync's own default is one vote, and a node without a name has its address."""
    addresses = tuple(settings[key] for key in (f"ring{number}_addr" for number in range(LINKS)) if key in settings)
    nodeid, votes = settings.get("nodeid", ""), settings.get("quorum_votes", "1")
    if not is_number(nodeid) or not is_number(votes) or not addresses:
        raise _unreadable("A node of it lacks its nodeid or its address.")
    return Member(settings.get("name") or addresses[0], int(nodeid), int(votes), addresses)


def _sections(text: str) -> Sequence[tuple[str, Settings]]:
    found: list[tuple[str, Settings]] = []
    path: list[str] = []
    open_ones: list[Settings] = [{}]
    for line in (one.strip() for one in text.splitlines()):
        if not line or line.startswith("#"):
            continue
        if line.endswith("{"):
            path.append(line[:-1].strip())
            open_ones.append({})
            found.append((".".join(path), open_ones[-1]))
        elif line == "}":
            if not path:
                raise _unreadable("It closes more than it opens.")
            path.pop()
            open_ones.pop()
        elif match := re.match(r"([^:\s]+)\s*:\s*(.*)", line):
            open_ones[-1][match[1]] = match[2]
        else:
            raise _unreadable(line[:200])
    if path:
        raise _unreadable("It ends in the middle of a section.")
    return found


def _unreadable(details: str) -> UnreadableError:
    return UnreadableError("Unable to read a corosync.conf", details=details)
