"""What speaks against forgetting a node, a sentence each with what to do about it; and the whole of the decision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from provisioner.errors import InputError
from provisioner.repair.facts import ClusterFacts, NodeFacts
from provisioner.repair.forgetting import DECISIONS, Forgetting, Kind, Sign, Target, Wish, fates_of, lead_of
from provisioner.repair.leftovers import Leftovers, storage_changes


def make_forgetting(
    facts: ClusterFacts, target: Target, wish: Wish, leftovers: Leftovers, signs: Sequence[Sign] = ()
) -> Forgetting:
    """What forgetting ``target`` would do, with every objection; ``InputError`` when the wish contradicts itself."""
    lead = lead_of(facts)
    if wish.off_for_good and wish.off_for_good != target.name:
        raise InputError(
            f"Unable to forget {target.name}: --off-for-good names {wish.off_for_good}",
            resolution=f"Say --off-for-good {target.name}, if that is the node that never comes back.",
        )
    if wish.move_guests_to and wish.archive_guests:
        raise InputError("Unable to both move and archive guests", resolution=f"Say one of them: {DECISIONS}")
    guests = lead.guests.get(target.name, ())
    found = [
        *(_against_member(facts, target, wish, signs) if target.kind is Kind.MEMBER else ()),
        *(_against_references(lead, target, leftovers) if target.kind is Kind.MEMBER else ()),
        *(_against_stranger(facts, target, wish, signs) if target.kind is not Kind.MEMBER else ()),
        *_against_guests(facts, target, wish),
        *_against_writing(lead, target, wish),
    ]
    return Forgetting(
        target=target,
        lead=lead.name,
        guests=fates_of(guests, lead.storages, wish),
        leftovers=leftovers,
        storages=storage_changes(lead.storages, target.name) if wish.storages else (),
        signs=tuple(signs),
        objections=tuple(found),
        has_directory=target.name in lead.guests,
    )


def _against_member(facts: ClusterFacts, target: Target, wish: Wish, signs: Sequence[Sign]) -> Iterator[str]:
    lead, name = lead_of(facts), target.name
    present = {*lead.joined, *(lead.quorum.present if lead.quorum else ())}
    if facts.node(name) is not None:
        yield f"{name} is running: it answers by ssh. Shut it down first, if it is really to go."
    if target.nodeid in present:
        yield f"corosync on {lead.name} has joined {name}: it is not off."
    for sign in signs:
        if sign.is_alive:
            yield f"Something answers at {sign.address}, an address of {name} ({sign.how}: {sign.said})."
    if not signs and facts.node(name) is None:
        yield f"Nobody has tried whether {name} answers at {', '.join(target.addresses)}."
    if wish.off_for_good != name:
        yield f"{name} may be merely off. If it never comes back as it is, say so: --off-for-good {name}"


def _against_references(lead: NodeFacts, target: Target, leftovers: Leftovers) -> Iterator[str]:
    name = target.name
    for job in leftovers.replication:
        yield f"Replication job {job.name} names {name} ({job.line}). Remove it first: {job.command}"
    if leftovers.has_qdevice:
        yield "The cluster has an external vote (QDevice). Remove it, and set it up afterwards: pvecm qdevice remove"
    if lead.ha is None:
        why = lead.unread.get("ha", "it was not told")
        yield f"What HA does is not known ({why}). Look at it first, on {lead.name}: ha-manager status"
    elif not lead.ha.is_idle:
        yield "HA is at work. Wait until ha-manager status says that nothing is started, moved or fenced."
    services = lead.ha.services.get(name, ()) if lead.ha else ()
    if services:
        yield f"HA counts {', '.join(services)} on {name}. Move or remove them first: ha-manager remove {services[0]}"


def _against_stranger(facts: ClusterFacts, target: Target, wish: Wish, signs: Sequence[Sign]) -> Iterator[str]:
    """A removed node that runs on may run its guests, too, on disks that others share."""
    running, name = facts.node(target.name), target.name
    for sign in signs if running is None else ():
        if sign.is_alive:
            yield (
                f"Something answers at {sign.address}, an address of {name} ({sign.how}: {sign.said}). Shut it down "
                f"first, or bring it back: provision cluster rejoin {name} root@{sign.address}"
            )
    if lead_of(facts).guests.get(name) and not signs and running is None and wish.off_for_good != name:
        yield (
            f"{name} has guests, and no address of it is known: nobody could try whether it runs them. If you know "
            f"that it is off, say so: --off-for-good {name}"
        )
    if running is not None:
        yield (
            f"{target.name} is no member, and it runs: it answers at {running.address}. Shut it down first, "
            f"or bring it back: provision cluster rejoin {target.name}"
        )


def _against_guests(facts: ClusterFacts, target: Target, wish: Wish) -> Iterator[str]:
    lead = lead_of(facts)
    guests = lead.guests.get(target.name, ())
    to = wish.move_guests_to
    if guests and not to and not wish.archive_guests:
        vmids = ", ".join(str(one.vmid) for one in sorted(guests, key=lambda one: one.vmid))
        yield f"{target.name} has the guests {vmids}: say what becomes of their configurations, {DECISIONS}"
    if to and (to == target.name or facts.node(to) is None or not _is_member(lead, to)):
        running = ", ".join(one.name for one in facts.nodes if one.name != target.name and _is_member(lead, one.name))
        yield f"Guests cannot be moved to {to}: it is no other member that runs. There are: {running}"


def _is_member(lead: NodeFacts, name: str) -> bool:
    return lead.pve_conf is not None and lead.pve_conf.member(name) is not None


def _against_writing(lead: NodeFacts, target: Target, wish: Wish) -> Iterator[str]:
    if not lead.is_writable:
        yield f"/etc/pve on {lead.name} cannot be written."
    only = [one.name for one in lead.storages if one.nodes == (target.name,)]
    if wish.storages and only:
        yield f"Storage {', '.join(only)} is on {target.name} only. Decide yourself: pvesm remove {only[0]}"
