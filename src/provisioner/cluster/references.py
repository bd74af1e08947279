"""Sections of ``/etc/pve`` that name guests by their numbers, and the command that takes a number out of it. Pure.

HA's resources and rules, replication and backup jobs, and pools are no part of a guest's configuration: they stay when
that is taken away with its node's folder.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from provisioner.cluster.facts import Condition, Diagnosis, Guest, GuestReference, NodeFacts

RESOURCES, RULES, REPLICATION, JOBS, POOLS = (
    "ha/resources.cfg",
    "ha/rules.cfg",
    "replication.cfg",
    "jobs.cfg",
    "user.cfg",
)
_WORDS = {
    RESOURCES: "HA resource",
    RULES: "HA rule",
    REPLICATION: "replication job",
    JOBS: "backup job",
    POOLS: "pool",
}
"""By file: what a section of it is called."""
_COMMANDS = {
    RESOURCES: ("ha-manager remove {kind}:{name}", "ha-manager remove {kind}:{name}"),
    RULES: ("ha-manager rules remove {name}", "ha-manager rules set {kind} {name} --resources {rest}"),
    REPLICATION: ("pvesr delete {name} --force", "pvesr delete {name} --force"),
    JOBS: ("pvesh delete /cluster/backup/{name}", "pvesh set /cluster/backup/{name} --vmid {rest}"),
    POOLS: ("pvesh set /pools/{name} --vms {gone} --delete 1", "pvesh set /pools/{name} --vms {gone} --delete 1"),
}
"""By file: what is typed when the section would name nobody any more, and when it names others, too."""
_OF_NESTED_POOL = "pvesh set /pools --poolid {name} --vms {gone} --delete 1"
"""The other call takes no name with a slash; this one is known since Proxmox VE 8.1."""
_FILE = re.compile(r"= (\S+)")
_HEAD = re.compile(r"([a-z-]+): (\S+)\s*")
_LIST = re.compile(r"\s+(?:resources|vmid)\s+(\S.*)")
_POOL = re.compile(r"pool:([^:]+):[^:]*:([^:]*):.*")


def read_guest_references(lines: Iterable[str]) -> tuple[GuestReference, ...]:
    """The sections that ``look.sh`` wrote, a file before its own; resources and replication are named for a guest."""
    found = list[GuestReference]()
    file = kind = name = ""
    for line in lines:
        if match := _FILE.fullmatch(line):
            file = match[1]
        elif match := _POOL.fullmatch(line):
            found.append(GuestReference(file, "pool", match[1], _entries(match[2])))
        elif match := _HEAD.fullmatch(line):
            kind, name = match.groups()
            own = {RESOURCES: f"{kind}:{name}", REPLICATION: name.partition("-")[0]}.get(file)
            if own is not None:
                found.append(GuestReference(file, kind, name, (own,)))
        elif match := _LIST.fullmatch(line):
            found.append(GuestReference(file, kind, name, _entries(match[1])))
    return tuple(reference for reference in found if reference.file in _WORDS)


def _entries(text: str) -> tuple[str, ...]:
    return tuple(filter(None, re.split(r"[,;\s]+", text)))


def vmid_of(entry: str) -> int:
    """The number in an entry: ``ct:101`` and ``101`` are 101; 0 where it has none."""
    number = re.search(r"(?:^|:)(\d{1,18})$", entry)
    return int(number[1]) if number else 0


def title_of(reference: GuestReference) -> str:
    """The words for a section: "HA resource ct:444", "pool web"."""
    names = {RESOURCES: f"{reference.kind}:{reference.name}"}
    return f"{_WORDS[reference.file]} {names.get(reference.file, reference.name)}"


def references_of(lead: NodeFacts, vmids: Collection[int]) -> tuple[GuestReference, ...]:
    """The sections that name any of these guests."""
    return tuple(reference for reference in lead.guest_references if not vmids_of(reference).isdisjoint(vmids))


def named_lines(lead: NodeFacts, guests: Iterable[Guest]) -> list[str]:
    """Return the sections that name guests of a node, a line each, as evidence."""
    found = references_of(lead, {guest.vmid for guest in guests})
    return [f"{title_of(reference)} names a guest of it" for reference in found]


def vmids_of(reference: GuestReference) -> frozenset[int]:
    """The numbers that it names."""
    return frozenset(filter(None, map(vmid_of, reference.entries)))


def removal(reference: GuestReference, gone: Collection[int]) -> str:
    """Return the command that takes these guests out of the section, and leaves the others in it."""
    going = [entry for entry in reference.entries if vmid_of(entry) in gone]
    staying = [entry for entry in reference.entries if entry not in going]
    command = _OF_NESTED_POOL if "/" in reference.name else _COMMANDS[reference.file][bool(staying)]
    return command.format(kind=reference.kind, name=reference.name, gone=",".join(going), rest=",".join(staying))


def orphan_diagnoses(lead: NodeFacts) -> Iterator[Diagnosis]:
    """The sections that name guests which the cluster does not have; none where its guests could not be read."""
    if "vmlist" in lead.unread:
        return
    evidence, commands = list[str](), list[str]()
    for reference in lead.guest_references:
        gone = vmids_of(reference).difference(lead.vmlist)
        if gone:
            evidence.append(
                f"{title_of(reference)} names {', '.join(map(str, sorted(gone)))} (/etc/pve/{reference.file})"
            )
            commands.append(removal(reference, gone))
    if evidence:
        what = "guests that do not exist are still named by number; a new guest with such a number would get all of it"
        advice = f"If none of them is to come back, on {lead.name}:\n" + "\n".join(commands)
        yield Diagnosis(Condition.LEFTOVERS, "", what, tuple(evidence), advice=advice)
