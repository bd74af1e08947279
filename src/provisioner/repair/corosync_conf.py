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
    totem: Settings = {}
    members = list[Member]()
    for name, settings in _sections(text):
        if name == "totem":
            totem.update(settings)
        elif name == "nodelist.node":
            members.append(member_of(settings))
    version = totem.get("config_version", "")
    if not is_number(version) or not members:
        raise _unreadable("There is no config_version or no nodelist in it.")
    return CorosyncConf(totem.get("cluster_name", ""), int(version), tuple(members), digest)


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
    return Member(name, int(nodeid), int(votes), tuple(addresses))


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
            key, value = _setting(line)
            open_sections[-1][key] = value
    if path:
        raise _unreadable("It ends in the middle of a section.")
    return sections


def _setting(line: str) -> tuple[str, str]:
    match = re.match(r"([^:\s]+)\s*:\s*(.*)", line)
    if match is None:
        raise _unreadable(line[:200])
    return match[1], match[2]


def _unreadable(details: str) -> UnreadableError:
    return UnreadableError("Unable to read a corosync.conf", details=details)
