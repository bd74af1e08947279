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
        return tuple(reference for reference in self.references if reference.file == REPLICATION)


@dataclass(frozen=True, slots=True)
class StorageChange:
    """A storage whose list of nodes is to lose the removed one; ``nodes``: those that stay, never none."""

    storage: str
    nodes: tuple[str, ...] = field(default=())


def leftovers_from(answer: str, node: str) -> Leftovers:
    """What ``leftovers.sh`` answered: lines of tab-separated words, the kind first; unknown kinds say nothing."""
    keys = list[str]()
    owners = set[str]()
    host_names = list[str]()
    references = list[Reference]()
    has_qdevice = False
    for row in answer.splitlines():
        match row.split("\t"):
            case ["key", owner, fingerprint, *_]:
                if owner.startswith("root@"):
                    owners.add(owner.removeprefix("root@"))
                if owner == f"root@{node}" and fingerprint not in keys:
                    keys.append(fingerprint)
            case ["host", name, *_]:
                host_names.append(name)
            case ["line", file, section, line]:
                references.append(_reference(file, section, line.strip(), node))
            case ["qdevice", *_]:
                has_qdevice = True
    return Leftovers(
        keys=tuple(keys),
        host_names=tuple(host_names),
        references=tuple(references),
        owners=frozenset(owners),
        has_qdevice=has_qdevice,
    )


def storage_changes(storages: Sequence[Storage], node: str) -> tuple[StorageChange, ...]:
    """The storages whose list names ``node`` among others, and what the list becomes."""
    changes = list[StorageChange]()
    for storage in storages:
        remaining = tuple(name for name in storage.nodes if name != node)
        is_shorter = len(remaining) < len(storage.nodes)
        if remaining and is_shorter:
            changes.append(StorageChange(storage.name, remaining))
    return tuple(changes)


def _reference(file: str, section: str, line: str, node: str) -> Reference:
    """The line as a reference, with the command that a person types about it.

    A list of nodes that would become empty means that the section itself has to go, which a person decides.
    """
    without_command = Reference(file, section, line, "")
    name = without_command.name
    key, _, value = line.partition(" ")
    if file == REPLICATION:
        command = f"pvesr delete {name} --force"
    elif file == "jobs.cfg" and key == "node":
        command = f"pvesh set /cluster/backup/{name} --delete node"
    elif file in _LISTS and key == "nodes":
        command = _list_command(file, name, _without(value, node))
    else:
        command = f"look at {section or line} in /etc/pve/{file}"
    return replace(without_command, command=command)


def _list_command(file: str, name: str, remaining: str) -> str:
    """What makes the section's list of nodes the ``remaining`` ones, or removes the section where none remain."""
    shorten, remove = _LISTS[file]
    if not remaining:
        return remove.format(name=name)
    return shorten.format(name=name, rest=remaining)


_LISTS = {
    STORAGES: ("pvesm set {name} --nodes {rest}", "pvesm remove {name}"),
    "ha/groups.cfg": ("ha-manager groupset {name} --nodes {rest}", "ha-manager groupremove {name}"),
    "ha/rules.cfg": ("ha-manager rules set node-affinity {name} --nodes {rest}", "ha-manager rules remove {name}"),
}
"""By file: what makes a list of nodes shorter, and what to do with one that would be empty."""


def _without(listed: str, node: str) -> str:
    """A list ("pve1,pve2:1") without ``node``, the others' priorities kept; empty when nothing stays."""
    remaining = list[str]()
    for part in listed.split(","):
        entry = part.strip()
        name = entry.partition(":")[0]
        if entry and name != node:
            remaining.append(entry)
    return ",".join(remaining)
