"""What forgetting a node means: which kind it is, what speaks against it, and what becomes of its guests; pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from provisioner.repair.facts import ClusterFacts, Guest, Member, NodeFacts, Storage
from provisioner.repair.leftovers import Leftovers, StorageChange
from provisioner.repair.own_addresses import is_address
from provisioner.values.errors import InputError, PreflightError

DECISIONS = "--move-guests-to NODE or --archive-guests"


class Kind(StrEnum):
    """What the name means to the cluster."""

    MEMBER = "member"
    GHOST = "ghost"
    """A directory in ``/etc/pve/nodes``, and no member."""
    REMOVED = "removed"
    """Neither; keys or references may be left."""


class Fate(StrEnum):
    """What is left of a guest's disk when its node is gone."""

    SHARED = "shared: it is still there"
    LOCAL = "local: gone with the node"
    UNKNOWN = "unknown: no such storage is known"


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user said: ``off_for_good`` repeats the node's name, ``storages``: storages' lists may be changed."""

    node: str
    off_for_good: str = ""
    move_guests_to: str = ""
    archive_guests: bool = False
    storages: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """The node that is meant; ``addresses`` and ``nodeid`` are those of a member."""

    name: str
    kind: Kind
    addresses: tuple[str, ...] = ()
    nodeid: int = 0


@dataclass(frozen=True, slots=True)
class Sign:
    """One try to hear from a node: ``is_alive`` also when what came back was a refusal."""

    address: str
    how: Literal["ping", "ssh"]
    is_alive: bool
    said: str = ""

    def words(self, name: str) -> str:
        """What answered, as an objection against taking the node of that name for off; without a full stop."""
        return f"Something answers at {self.address}, an address of {name} ({self.how}: {self.said})"


@dataclass(frozen=True, slots=True)
class GuestFate:
    """A guest of the node, what is left of each of its disks, and where its configuration goes; neither: undecided."""

    guest: Guest
    disks: tuple[tuple[str, Fate], ...]
    to: str = ""
    is_archived: bool = False


@dataclass(frozen=True, slots=True)
class Forgetting:
    """What is to be done and what was proved; ``objections`` must be none for it to be done."""

    target: Target
    lead: str
    guests: tuple[GuestFate, ...]
    leftovers: Leftovers
    storages: tuple[StorageChange, ...] = ()
    signs: tuple[Sign, ...] = ()
    objections: tuple[str, ...] = ()
    has_directory: bool = False

    @property
    def runbooks(self) -> tuple[str, ...]:
        """The runbooks that do it, in their order; none: there is nothing to do."""
        if self.target.kind is Kind.MEMBER:
            return "retired-node", "ghost-node", "removed-node-leftovers"
        runbooks = list[str]()
        if self.has_directory:
            runbooks.append("ghost-node")
        if self.storages or not self.leftovers.is_clean:
            runbooks.append("removed-node-leftovers")
        return tuple(runbooks)


def lead_of(facts: ClusterFacts) -> NodeFacts:
    """The node whose word counts; ``PreflightError`` when the host is in no cluster or nothing is quorate."""
    asked = facts.node(facts.asked) or next(iter(facts.nodes), None)
    if asked is not None and not asked.files:
        raise PreflightError(
            f"Unable to judge nodes on {asked.name}: it is in no cluster",
            details="On a single node every name but its own is absent from corosync; that proves nothing.",
            resolution="A directory in /etc/pve/nodes there may be this machine under an older name: look into it.",
        )
    if facts.lead is None:
        raise PreflightError(
            "Unable to forget a node: no node that answers is quorate",
            details="Without quorum nothing in /etc/pve can be changed.",
            resolution="Bring the other nodes back, or read: provision runbook show lost-quorum",
        )
    return facts.lead


def target_of(facts: ClusterFacts, name: str, leftovers: Leftovers, forgotten: Collection[str] = ()) -> Target:
    """The node of that name and its kind; ``forgotten``: names of nodes that we have forgotten before.

    ``InputError``: an address, or a name that nobody knows (the known ones are listed). ``PreflightError``: the lead
    itself, or the lists contradict each other.
    """
    lead = lead_of(facts)
    _require_name(facts, name, leftovers)
    if name == lead.name:
        raise PreflightError(
            f"Unable to forget {name}: it is the node that would do it",
            resolution="Ask another node of the cluster, if this one is really to go: it has to be off then.",
        )
    member = lead.pve_conf.member(name) if lead.pve_conf else None
    is_peer = any(peer.name == name for peer in lead.peers)
    if is_peer != (member is not None):
        raise _contradiction(name, in_list=member is not None)
    if member is not None:
        return Target(name, Kind.MEMBER, member.addresses, member.nodeid)
    if name in lead.guests:
        return Target(name, Kind.GHOST)
    if name in leftovers.owners or leftovers.host_names or name in forgotten:
        return Target(name, Kind.REMOVED)
    known = ", ".join(known_names(facts, leftovers))
    raise InputError(
        f"Unable to find node {name}",
        details=f"Nothing there names it. Known are: {known}",
        resolution="Name one of them.",
    )


def _require_name(facts: ClusterFacts, name: str, leftovers: Leftovers) -> None:
    """Raise ``InputError`` for an address."""
    if is_address(name.strip("[]")):
        raise InputError(
            f"Unable to forget {name}: that is an address",
            details="An address may belong to another node by now.",
            resolution=f"Name the node: {', '.join(known_names(facts, leftovers))}",
        )


def known_names(facts: ClusterFacts, leftovers: Leftovers) -> tuple[str, ...]:
    """Members, directories in ``/etc/pve/nodes``, and owners of keys."""
    lead = facts.lead
    if lead is None:
        return tuple(node.name for node in facts.nodes)
    names = {*lead.guests, *leftovers.owners}
    if lead.pve_conf is not None:
        names.update(member.name for member in lead.pve_conf.members)
    return tuple(sorted(names))


def _contradiction(name: str, *, in_list: bool) -> PreflightError:
    """The error for a node that one of the lead's two lists of members has and the other lacks."""
    which = (
        "corosync.conf names it and .members does not" if in_list else ".members names it and corosync.conf does not"
    )
    return PreflightError(
        f"Unable to tell whether {name} is a member: {which}",
        details="It is a member for one part of the cluster's software and a ghost for the other.",
        resolution="Wait a minute if a node was just added or removed, then run: provision cluster check",
    )


def fates_of(guests: Sequence[Guest], storages: Sequence[Storage], wish: Wish) -> tuple[GuestFate, ...]:
    """What becomes of each guest: its disks by what ``storage.cfg`` says, its configuration by what was decided."""
    shared = {storage.name: storage.is_shared for storage in storages}
    fates = list[GuestFate]()
    for guest in sorted(guests, key=lambda guest: guest.vmid):
        disks = tuple((volume, _fate(volume, shared)) for volume in guest.volumes)
        fates.append(GuestFate(guest, disks, wish.move_guests_to, wish.archive_guests))
    return tuple(fates)


def _fate(volume: str, shared: dict[str, bool]) -> Fate:
    """What is left of a disk when the node that it is on is gone, by what its storage is."""
    if volume.startswith("/"):  # a device or folder of the node's own
        return Fate.LOCAL
    storage = volume.partition(":")[0]
    if storage not in shared:
        return Fate.UNKNOWN
    return Fate.SHARED if shared[storage] else Fate.LOCAL


def member_of(facts: ClusterFacts, name: str) -> Member | None:
    """The member of that name in the lead's list, or None."""
    lead = facts.lead
    return lead.pve_conf.member(name) if lead and lead.pve_conf else None
