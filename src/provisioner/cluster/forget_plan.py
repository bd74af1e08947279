"""The decision to forget a node: which kind it is, what speaks against it, what becomes of its guests; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from ipaddress import ip_address

from provisioner.cluster.facts import ClusterFacts, Guest, Member, NodeFacts, Sign, Storage, is_address
from provisioner.cluster.node_conditions import put_name_back
from provisioner.cluster.references import RESOURCES, references_of, removal, vmids_of
from provisioner.cluster.votes import expected_votes, needed_by
from provisioner.values.errors import InputError, PreflightError

DECISIONS = "--move-guests-to NODE or --archive-guests"
REPLICATION = "replication.cfg"
STORAGES = "storage.cfg"
_LISTS = {
    STORAGES: ("pvesm set {name} --nodes {rest}", "pvesm remove {name}"),
    "ha/groups.cfg": ("ha-manager groupset {name} --nodes {rest}", "ha-manager groupremove {name}"),
    "ha/rules.cfg": ("ha-manager rules set node-affinity {name} --nodes {rest}", "ha-manager rules remove {name}"),
}
"""By file: what makes a list of nodes shorter, and what to do with one that would be empty."""


class Kind(StrEnum):
    """The kinds of thing that the name is to the cluster."""

    MEMBER = "member"
    GHOST = "ghost"
    """A directory in ``/etc/pve/nodes``, and no member."""
    REMOVED = "removed"
    """Neither; keys or references may be left."""


class Fate(StrEnum):
    """The states in which a guest's disk is left when its node is gone."""

    SHARED = "shared: it is still there"
    LOCAL = "local: gone with the node"
    UNKNOWN = "unknown: no such storage is known"


@dataclass(frozen=True, slots=True)
class ForgetOptions:
    """The user's options: ``off_for_good`` repeats the node's name, ``storages``: storages' lists may be changed."""

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
class Reference:
    """A line of ``/etc/pve/<file>`` that names the node, in ``section``; ``command``: what a person types about it."""

    file: str
    section: str
    line: str
    command: str

    @property
    def name(self) -> str:
        """The name of the section ("local: 100-0" is 100-0)."""
        return self.section.partition(":")[2].strip()


@dataclass(frozen=True, slots=True)
class Leftovers:
    """All that names the node, as found on the lead.

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
        """True when nothing that we remove is left; references may be."""
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


@dataclass(frozen=True, slots=True)
class GuestFate:
    """A guest of the node, what is left of each of its disks, and where its configuration goes; neither: undecided."""

    guest: Guest
    disks: tuple[tuple[str, Fate], ...]
    to: str = ""
    is_archived: bool = False


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """The work that is to be done, and what was proved; ``objections`` must be none for it to be done.

    ``guest_references``: what names the guests that are archived, by number.
    """

    target: Target
    lead: str
    guests: tuple[GuestFate, ...]
    leftovers: Leftovers
    storages: tuple[StorageChange, ...] = ()
    signs: tuple[Sign, ...] = ()
    objections: tuple[str, ...] = ()
    has_directory: bool = False
    guest_references: tuple[Reference, ...] = ()

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
    if is_address(name.strip("[]")):
        raise InputError(
            f"Unable to forget {name}: that is an address",
            details="An address may belong to another node by now.",
            resolution=f"Name the node: {', '.join(known_names(facts, leftovers))}",
        )
    if name == lead.name:
        raise PreflightError(
            f"Unable to forget {name}: it is the node that would do it",
            resolution="Ask another node of the cluster, if this one is really to go: it has to be off then.",
        )
    for node in facts.nodes:
        if name == node.hostname:
            raise PreflightError(
                f"Unable to forget {name}: that is the host name of {node.name} now",
                details=f"By its id and address it is the member {node.name}, and it runs.",
                resolution=put_name_back(node),
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


def member_of(facts: ClusterFacts, name: str) -> Member | None:
    """The member of that name in the lead's list, or None."""
    lead = facts.lead
    return lead.pve_conf.member(name) if lead and lead.pve_conf else None


def addresses_to_try(facts: ClusterFacts, target: Target, told: Iterable[str] = ()) -> tuple[str, ...]:
    """The addresses at which ``target`` may answer: a member's own, what any list has of it, and what was ``told``.

    None that is another node's now: that one answers for itself. A removed node is silent in corosync, and its guests
    may run on; so those of a ghost count as much as a member's.
    """
    others = _of_others(facts, target.name)
    known = (*_addresses_told(facts, target.name), *told)
    own = [address for address in known if address not in others and not _is_loopback(address)]
    addresses = dict.fromkeys((*target.addresses, *own))
    return tuple(filter(None, addresses))


def _addresses_told(facts: ClusterFacts, name: str) -> Iterator[str]:
    """The addresses that anybody knows of the node: those that were tried, and those in all nodes' lists."""
    for silent in facts.silent:
        if silent.name == name:
            yield silent.address
    for node in facts.nodes:
        for member in node.listed:
            if member.name == name:
                yield from member.addresses
        for peer in node.peers:
            if peer.name == name:
                yield peer.address


def _of_others(facts: ClusterFacts, name: str) -> frozenset[str]:
    """The addresses of the cluster's other members, and of the other nodes that answered."""
    addresses = set[str]()
    conf = lead_of(facts).pve_conf
    if conf is not None:
        for member in conf.others(name):
            addresses.update(member.addresses)
    for node in facts.nodes:
        if node.name != name:
            addresses.update(node.all_addresses)
    return frozenset(addresses)


def _is_loopback(text: str) -> bool:
    """Return whether it leads to the machine itself; a certificate names those, too."""
    try:
        return ip_address(text).is_loopback
    except ValueError:
        return False


def make_forget_plan(
    facts: ClusterFacts, target: Target, options: ForgetOptions, leftovers: Leftovers, signs: Sequence[Sign] = ()
) -> ForgetPlan:
    """Decide what to do about ``target``, with every objection; ``InputError``: the options contradict each other."""
    lead = lead_of(facts)
    _require_consistent(options, target)
    objections = list[str]()
    if target.kind is Kind.MEMBER:
        objections += _against_member(facts, target, options, signs)
        objections += _against_references(lead, target, leftovers)
    else:
        objections += _against_removed(facts, target, options, signs)
    objections += _against_guests(facts, target, options)
    objections += _against_writing(lead, target, options)
    guests = lead.guests.get(target.name, ())
    return ForgetPlan(
        target=target,
        lead=lead.name,
        guests=fates_of(guests, lead.storages, options),
        leftovers=leftovers,
        storages=storage_changes(lead.storages, target.name) if options.storages else (),
        signs=tuple(signs),
        objections=tuple(objections),
        has_directory=target.name in lead.guests,
        guest_references=_of_archived(lead, guests, options),
    )


def _of_archived(lead: NodeFacts, guests: Sequence[Guest], options: ForgetOptions) -> tuple[Reference, ...]:
    """Return the sections that still name archived guests by number, each with its command."""
    vmids = {guest.vmid for guest in guests if options.archive_guests}
    references = list[Reference]()
    for found in references_of(lead, vmids):
        numbers = ", ".join(map(str, sorted(vmids_of(found).intersection(vmids))))
        command = removal(found, vmids)
        references.append(Reference(found.file, f"{found.kind}: {found.name}", f"names {numbers}", command))
    return tuple(references)


def _require_consistent(options: ForgetOptions, target: Target) -> None:
    """Raise ``InputError`` for a options that contradicts itself."""
    if options.off_for_good and options.off_for_good != target.name:
        raise InputError(
            f"Unable to forget {target.name}: --off-for-good names {options.off_for_good}",
            resolution=f"Say --off-for-good {target.name}, if that is the node that never comes back.",
        )
    if options.move_guests_to and options.archive_guests:
        raise InputError("Unable to both move and archive guests", resolution=f"Say one of them: {DECISIONS}")


def _against_member(
    facts: ClusterFacts, target: Target, options: ForgetOptions, signs: Sequence[Sign]
) -> Iterator[str]:
    """A member may be forgotten only when nothing of it answers, and the user says that it never comes back."""
    lead, name = lead_of(facts), target.name
    is_running = facts.node(name) is not None
    if is_running:
        yield f"{name} is running: it answers by ssh. Shut it down first, if it is really to go."
    if target.nodeid in lead.partition:
        yield f"corosync on {lead.name} has joined {name}: it is not off."
    for sign in signs:
        if sign.is_alive:
            yield f"{sign.words(name)}."
    if not signs and not is_running:
        yield f"Nobody has tried whether {name} answers at {', '.join(target.addresses)}."
    yield from _against_votes(lead, name)
    if options.off_for_good != name:
        yield f"{name} may be merely off. If it never comes back as it is, say so: --off-for-good {name}"


def _against_votes(lead: NodeFacts, name: str) -> Iterator[str]:
    """The others have to be quorate by the list without it: reading that ends what ``pvecm expected`` has set."""
    conf, quorum = lead.pve_conf, lead.quorum
    if conf is None or quorum is None:
        return
    shorter = replace(conf, members=conf.others(name))
    needed = needed_by(shorter, quorum)
    if quorum.total >= needed:
        return
    yield (
        f"Without {name} the list has {expected_votes(shorter)} votes, {needed} are needed, and {quorum.total} are "
        "there: /etc/pve could not be written any more in the middle of it. Bring another member back first, or do it "
        f"by hand, on {lead.name}: pvecm delnode {name}; pvecm expected {quorum.total}"
    )


def _against_references(lead: NodeFacts, target: Target, leftovers: Leftovers) -> Iterator[str]:
    """Yield what of the cluster's configuration needs the member: replication, an external vote, HA."""
    name = target.name
    for job in leftovers.replication:
        yield f"Replication job {job.name} names {name} ({job.line}). Remove it first: {job.command}"
    if leftovers.has_qdevice:
        yield "The cluster has an external vote (QDevice). Remove it, and set it up afterwards: pvecm qdevice remove"
    if lead.ha is None:
        why = lead.unread.get("ha", "it was not told")
        yield f"What HA does is not known ({why}). Look at it first, on {lead.name}: ha-manager status"
        return
    if not lead.ha.is_idle:
        yield f"HA is at work. {lead.ha.advice}"
    services = lead.ha.services.get(name, ())
    if services:
        yield f"HA counts {', '.join(services)} on {name}. Move or remove them first: ha-manager remove {services[0]}"


def _against_removed(
    facts: ClusterFacts, target: Target, options: ForgetOptions, signs: Sequence[Sign]
) -> Iterator[str]:
    """A removed node that runs on may run its guests, too, on disks that others share."""
    name = target.name
    running = facts.node(name)
    if running is not None:
        yield (
            f"{name} is no member, and it runs: it answers at {running.address}. Shut it down first, "
            f"or bring it back: provision cluster rejoin {name}"
        )
        return
    for sign in signs:
        if sign.is_alive:
            yield (
                f"{sign.words(name)}. Shut it down first, or bring it back: provision cluster rejoin {name} "
                f"root@{sign.address}"
            )
    has_guests = bool(lead_of(facts).guests.get(name))
    if has_guests and not signs and options.off_for_good != name:
        yield (
            f"{name} has guests, and no address of it is known: nobody could try whether it runs them. If you know "
            f"that it is off, say so: --off-for-good {name}"
        )


def _against_guests(facts: ClusterFacts, target: Target, options: ForgetOptions) -> Iterator[str]:
    """Yield what becomes of the guests has to be said, and the node that they are moved to has to be there."""
    guests = lead_of(facts).guests.get(target.name, ())
    is_decided = bool(options.move_guests_to) or options.archive_guests
    if guests and not is_decided:
        vmids = sorted(guest.vmid for guest in guests)
        numbers = ", ".join(map(str, vmids))
        yield f"{target.name} has the guests {numbers}: say what becomes of their configurations, {DECISIONS}"
    for reference in _of_archived(lead_of(facts), guests, options):
        if reference.file == RESOURCES:
            yield f"HA manages a guest that is to be archived ({reference.section}). First: {reference.command}"
    destination = options.move_guests_to
    running = _other_members(facts, target)
    if destination and destination not in running:
        names = ", ".join(running)
        yield f"Guests cannot be moved to {destination}: it is no other member that runs. There are: {names}"


def _other_members(facts: ClusterFacts, target: Target) -> list[str]:
    """The names of the members that answer, without the node that is to be forgotten."""
    conf = lead_of(facts).pve_conf
    if conf is None:
        return []
    others = {member.name for member in conf.others(target.name)}
    return [node.name for node in facts.nodes if node.name in others]


def _against_writing(lead: NodeFacts, target: Target, options: ForgetOptions) -> Iterator[str]:
    """Yield what keeps ``/etc/pve`` and the lists of storages from being changed."""
    if not lead.is_writable:
        yield f"/etc/pve on {lead.name} cannot be written."
    if not options.storages:
        return
    only = [storage.name for storage in lead.storages if storage.nodes == (target.name,)]
    if only:
        yield f"Storage {', '.join(only)} is on {target.name} only. Decide yourself: pvesm remove {only[0]}"


def fates_of(guests: Sequence[Guest], storages: Sequence[Storage], options: ForgetOptions) -> tuple[GuestFate, ...]:
    """Decide about each guest: its disks by what ``storage.cfg`` says, its configuration by what was decided."""
    shared = {storage.name: storage.is_shared for storage in storages}
    fates = list[GuestFate]()
    for guest in sorted(guests, key=lambda guest: guest.vmid):
        disks = tuple((volume, _fate(volume, shared)) for volume in guest.volumes)
        fates.append(GuestFate(guest, disks, options.move_guests_to, options.archive_guests))
    return tuple(fates)


def _fate(volume: str, shared: dict[str, bool]) -> Fate:
    """Return what is left of a disk when the node that it is on is gone, by what its storage is."""
    if volume.startswith("/"):  # a device or folder of the node's own
        return Fate.LOCAL
    storage = volume.partition(":")[0]
    if storage not in shared:
        return Fate.UNKNOWN
    return Fate.SHARED if shared[storage] else Fate.LOCAL


def leftovers_from(answer: str, node: str) -> Leftovers:
    """Read what ``leftovers.sh`` wrote: lines of tab-separated words, the kind first; unknown kinds say nothing."""
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
        shorten, remove = _LISTS[file]
        remaining = _without(value, node)
        command = shorten.format(name=name, rest=remaining) if remaining else remove.format(name=name)
    else:
        command = f"look at {section or line} in /etc/pve/{file}"
    return replace(without_command, command=command)


def _without(listed: str, node: str) -> str:
    """A list ("pve1,pve2:1") without ``node``, the others' priorities kept; empty when nothing stays."""
    remaining = list[str]()
    for part in listed.split(","):
        entry = part.strip()
        name = entry.partition(":")[0]
        if entry and name != node:
            remaining.append(entry)
    return ",".join(remaining)
