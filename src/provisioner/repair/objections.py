"""What speaks against forgetting a node, a sentence each with what to do about it; and the whole of the decision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from provisioner.repair.facts import ClusterFacts, NodeFacts
from provisioner.repair.forgetting import DECISIONS, Forgetting, Kind, Sign, Target, Wish, fates_of, lead_of
from provisioner.repair.leftovers import Leftovers, storage_changes
from provisioner.values.errors import InputError


def make_forgetting(
    facts: ClusterFacts, target: Target, wish: Wish, leftovers: Leftovers, signs: Sequence[Sign] = ()
) -> Forgetting:
    """What forgetting ``target`` would do, with every objection; ``InputError`` when the wish contradicts itself."""
    lead = lead_of(facts)
    _require_consistent(wish, target)
    objections = list[str]()
    if target.kind is Kind.MEMBER:
        objections += _against_member(facts, target, wish, signs)
        objections += _against_references(lead, target, leftovers)
    else:
        objections += _against_removed(facts, target, wish, signs)
    objections += _against_guests(facts, target, wish)
    objections += _against_writing(lead, target, wish)
    guests = lead.guests.get(target.name, ())
    return Forgetting(
        target=target,
        lead=lead.name,
        guests=fates_of(guests, lead.storages, wish),
        leftovers=leftovers,
        storages=storage_changes(lead.storages, target.name) if wish.storages else (),
        signs=tuple(signs),
        objections=tuple(objections),
        has_directory=target.name in lead.guests,
    )


def _require_consistent(wish: Wish, target: Target) -> None:
    """Raise ``InputError`` for a wish that contradicts itself."""
    if wish.off_for_good and wish.off_for_good != target.name:
        raise InputError(
            f"Unable to forget {target.name}: --off-for-good names {wish.off_for_good}",
            resolution=f"Say --off-for-good {target.name}, if that is the node that never comes back.",
        )
    if wish.move_guests_to and wish.archive_guests:
        raise InputError("Unable to both move and archive guests", resolution=f"Say one of them: {DECISIONS}")


def _against_member(facts: ClusterFacts, target: Target, wish: Wish, signs: Sequence[Sign]) -> Iterator[str]:
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
    if wish.off_for_good != name:
        yield f"{name} may be merely off. If it never comes back as it is, say so: --off-for-good {name}"


def _against_references(lead: NodeFacts, target: Target, leftovers: Leftovers) -> Iterator[str]:
    """What of the cluster's configuration needs the member: replication, an external vote, HA."""
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
        yield "HA is at work. Wait until ha-manager status says that nothing is started, moved or fenced."
    services = lead.ha.services.get(name, ())
    if services:
        yield f"HA counts {', '.join(services)} on {name}. Move or remove them first: ha-manager remove {services[0]}"


def _against_removed(facts: ClusterFacts, target: Target, wish: Wish, signs: Sequence[Sign]) -> Iterator[str]:
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
    if has_guests and not signs and wish.off_for_good != name:
        yield (
            f"{name} has guests, and no address of it is known: nobody could try whether it runs them. If you know "
            f"that it is off, say so: --off-for-good {name}"
        )


def _against_guests(facts: ClusterFacts, target: Target, wish: Wish) -> Iterator[str]:
    """What becomes of the guests has to be said, and the node that they are moved to has to be there."""
    guests = lead_of(facts).guests.get(target.name, ())
    is_decided = bool(wish.move_guests_to) or wish.archive_guests
    if guests and not is_decided:
        vmids = sorted(guest.vmid for guest in guests)
        numbers = ", ".join(map(str, vmids))
        yield f"{target.name} has the guests {numbers}: say what becomes of their configurations, {DECISIONS}"
    destination = wish.move_guests_to
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


def _against_writing(lead: NodeFacts, target: Target, wish: Wish) -> Iterator[str]:
    if not lead.is_writable:
        yield f"/etc/pve on {lead.name} cannot be written."
    if not wish.storages:
        return
    only = [storage.name for storage in lead.storages if storage.nodes == (target.name,)]
    if only:
        yield f"Storage {', '.join(only)} is on {target.name} only. Decide yourself: pvesm remove {only[0]}"
