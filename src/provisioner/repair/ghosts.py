"""Nodes that exist only in ``/etc/pve``: folders of nobody, and what else still names a node that is gone.

Only a quorate node's list proves that a name belongs to nobody; an unclustered node proves nothing (its host name may
have been changed).
"""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.repair.conditions import Condition, Diagnosis
from provisioner.repair.facts import Guest, Member, NodeFacts, Peer
from provisioner.repair.own_addresses import is_address
from provisioner.repair.view import View, is_clustered

FORGET = "provision cluster forget {}"


def ghost_diagnoses(view: View) -> Iterator[Diagnosis]:
    """Ghosts and leftovers, by the lead's ``/etc/pve``; none without a lead."""
    lead = view.facts.lead
    if lead is None or not is_clustered(lead):
        return
    present = known_names(lead, view)
    ghosts = set(lead.guests) - present
    for name in sorted(ghosts):
        yield _ghost(name, lead)
    places_by_name = _leftovers(lead, present, ghosts)
    for name in sorted(places_by_name):
        yield Diagnosis(
            Condition.LEFTOVERS,
            name,
            "it is no member any more, and is still named",
            tuple(places_by_name[name]),
            "removed-node-leftovers",
            FORGET.format(name),
        )


def known_names(lead: NodeFacts, view: View) -> set[str]:
    """The names that are no ghosts: members by any list of the lead's, and nodes that answered."""
    named: list[Member | NodeFacts | Peer] = [*view.members, *view.facts.nodes, *lead.peers]
    for conf in lead.files:
        named += conf.members
    return {node.name for node in named}


def _ghost(name: str, lead: NodeFacts) -> Diagnosis:
    """The diagnosis of a folder in ``/etc/pve/nodes`` that is no node's, with the guests in it."""
    guests = lead.guests[name]
    where = f"/etc/pve/nodes/{name} on {lead.name}; neither the nodelist nor .members has it"
    forget = FORGET.format(name)
    off = "If the machine still exists: never power it on unchanged in this network."
    if not guests:
        what = "a ghost: only its folder is left, without guests"
        return Diagnosis(Condition.GHOST, name, what, (where,), "ghost-node", f"{forget}. {off}")
    evidence = [where, *(_guest_line(guest) for guest in guests)]
    plural = "s" if len(guests) > 1 else ""
    what = f"a ghost: its folder is left, with {len(guests)} guest{plural}"
    advice = f"Move or archive its guests first: {forget} shows what can be kept. {off}"
    return Diagnosis(Condition.GHOST_WITH_GUESTS, name, what, tuple(evidence), "ghost-node", advice)


def _guest_line(guest: Guest) -> str:
    volumes = ", ".join(guest.volumes) or "no disks"
    return f"{guest.kind} {guest.title}: {volumes}"


def _leftovers(lead: NodeFacts, present: set[str], ghosts: set[str]) -> dict[str, list[str]]:
    """Name → where it is named. A key alone proves nothing: an administrator's own is in the same file."""
    places_by_name = dict[str, list[str]]()
    for name in lead.references.keys() - present:
        places_by_name[name] = list(lead.references[name])
    for name in filter(_is_node_name, lead.known_hosts):
        if name not in present:
            places_by_name.setdefault(name, []).append("/etc/pve/priv/known_hosts")
    for name in lead.keys:
        if name in places_by_name or name in ghosts:
            places_by_name.setdefault(name, []).append("/etc/pve/priv/authorized_keys")
    return places_by_name


def _is_node_name(name: str) -> bool:
    """Whether it may be a node's: not hashed, without a port or a marker; a node's name has no domain."""
    if name.startswith(("|", "[", "@")) or "." in name:
        return False
    return not is_address(name)
