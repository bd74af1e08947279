"""What still names a removed node: keys, host keys, and lines of the configuration with the command to type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from provisioner.repair.facts import Storage

REPLICATION = "replication.cfg"
STORAGES = "storage.cfg"


@dataclass(frozen=True, slots=True)
class Reference:
    """A line of ``/etc/pve/<file>`` that names the node, in ``section``; ``command``: what a person types about it."""

    file: str
    section: str
    line: str
    command: str

    @property
    def name(self) -> str:
        """What the section is called ("local: 100-0" is 100-0)."""
        return self.section.partition(":")[2].strip()


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What was found on the lead.

    ``keys``: fingerprints of the node's keys that open every node. ``host_names``: which of its names and addresses
    have host keys. ``owners``: all nodes that have keys there. ``has_qdevice``: an external vote is in use.
    """

    keys: tuple[str, ...] = ()
    host_names: tuple[str, ...] = ()
    references: tuple[Reference, ...] = ()
    owners: frozenset[str] = frozenset()
    has_qdevice: bool = False

    @property
    def is_clean(self) -> bool:
        """Whether nothing that we remove is left; references may be."""
        return not self.keys and not self.host_names

    @property
    def replication(self) -> tuple[Reference, ...]:
        """The replication jobs that name the node: they go before the node does."""
        return tuple(one for one in self.references if one.file == REPLICATION)


@dataclass(frozen=True, slots=True)
class StorageChange:
    """A storage whose list of nodes is to lose the removed one; ``nodes``: those that stay, never none."""

    storage: str
    nodes: tuple[str, ...] = field(default=())


def leftovers_from(answer: str, node: str) -> Leftovers:
    """What ``leftovers.sh`` answered: lines of tab-separated words, the kind first; unknown kinds say nothing."""
    rows = [line.split("\t") for line in answer.splitlines()]
    keys = [row for row in rows if row[0] == "key" and len(row) > 2]  # noqa: PLR2004  # kind, owner, fingerprint
    return Leftovers(
        keys=tuple(dict.fromkeys(row[2] for row in keys if row[1] == f"root@{node}")),
        host_names=tuple(row[1] for row in rows if row[0] == "host"),
        references=tuple(_reference(row[1:], node) for row in rows if row[0] == "line" and len(row) == len(LINE)),
        owners=frozenset(row[1].removeprefix("root@") for row in keys if row[1].startswith("root@")),
        has_qdevice=any(row[0] == "qdevice" for row in rows),
    )


LINE = ("kind", "file", "section", "text")


def storage_changes(storages: Sequence[Storage], node: str) -> tuple[StorageChange, ...]:
    """The storages whose list names ``node`` among others, and what the list becomes."""
    return tuple(
        StorageChange(one.name, rest)
        for one in storages
        if node in one.nodes and (rest := tuple(name for name in one.nodes if name != node))
    )


def _reference(words: Sequence[str], node: str) -> Reference:
    file, section, line = words
    found = Reference(file, section, line.strip(), "")
    return replace(found, command=_command(found, node))


def _command(found: Reference, node: str) -> str:
    """What to type; a list that would be empty means that the thing itself goes, which a person decides."""
    key, _, listed = found.line.partition(" ")
    rest, name = _without(listed, node), found.name
    if found.file == REPLICATION:
        return f"pvesr delete {name} --force"
    if found.file == "jobs.cfg" and key == "node":
        return f"pvesh set /cluster/backup/{name} --delete node"
    if key == "nodes" and found.file in _LISTS:
        fewer, gone = _LISTS[found.file]
        return (fewer if rest else gone).format(name=name, rest=rest)
    return f"look at {found.section or found.line} in /etc/pve/{found.file}"


_LISTS = {
    STORAGES: ("pvesm set {name} --nodes {rest}", "pvesm remove {name}"),
    "ha/groups.cfg": ("ha-manager groupset {name} --nodes {rest}", "ha-manager groupremove {name}"),
    "ha/rules.cfg": ("ha-manager rules set node-affinity {name} --nodes {rest}", "ha-manager rules remove {name}"),
}
"""By file: what makes a list of nodes shorter, and what to do with one that would be empty."""


def _without(listed: str, node: str) -> str:
    """A list ("pve1,pve2:1") without ``node``, the others' priorities kept; empty when nothing stays."""
    names = [one.strip() for one in listed.split(",")]
    return ",".join(one for one in names if one and one.partition(":")[0] != node)
