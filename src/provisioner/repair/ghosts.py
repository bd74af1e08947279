"""Nodes that exist only in ``/etc/pve``: folders of nobody, and what else still names a node that is gone.

Only a quorate node's list proves that a name belongs to nobody; an unclustered node proves nothing (its host name may
have been changed).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from provisioner.repair.conditions import Condition, Diagnosis
from provisioner.repair.facts import NodeFacts
from provisioner.repair.view import View, is_clustered

FORGET = "provision cluster forget {}"


def ghost_diagnoses(view: View) -> Iterator[Diagnosis]:
    """Ghosts and leftovers, by the lead's ``/etc/pve``; none without a lead."""
    lead = view.facts.lead
    if lead is None or not is_clustered(lead):
        return
    present = known_names(lead, view)
    folders = {name for name in lead.guests if name not in present}
    for name in sorted(folders):
        yield _ghost(name, lead)
    for name, where in sorted(_leftovers(lead, present, folders).items()):
        advice = FORGET.format(name)
        what = "it is no member any more, and is still named"
        yield Diagnosis(Condition.LEFTOVERS, name, what, tuple(where), "removed-node-leftovers", advice)


def known_names(lead: NodeFacts, view: View) -> set[str]:
    """The names that are no ghosts: members by any list of the lead's, and nodes that answered."""
    names = {one.name for one in view.members} | {one.name for one in view.facts.nodes}
    names |= {one.name for conf in (lead.pve_conf, lead.local_conf) if conf for one in conf.members}
    return names | {one.name for one in (lead.pmxcfs.peers if lead.pmxcfs else ())}


def _ghost(name: str, lead: NodeFacts) -> Diagnosis:
    guests = lead.guests[name]
    where = f"/etc/pve/nodes/{name} on {lead.name}; neither the nodelist nor .members has it"
    off = "If the machine still exists: never power it on unchanged in this network."
    if not guests:
        what = "a ghost: only its folder is left, without guests"
        return Diagnosis(Condition.GHOST, name, what, (where,), "ghost-node", f"{FORGET.format(name)}. {off}")
    lines = [
        f"{one.kind} {one.vmid}{f' {one.name}' if one.name else ''}: {', '.join(one.volumes) or 'no disks'}"
        for one in guests
    ]
    what = f"a ghost: its folder is left, with {len(guests)} guest{'s' if len(guests) > 1 else ''}"
    advice = f"Move or archive its guests first: {FORGET.format(name)} shows what can be kept. {off}"
    return Diagnosis(Condition.GHOST_WITH_GUESTS, name, what, (where, *lines), "ghost-node", advice)


def _leftovers(lead: NodeFacts, present: set[str], folders: set[str]) -> dict[str, list[str]]:
    """Name → where it is named. A key alone proves nothing: an administrator's own is in the same file."""
    found: dict[str, list[str]] = {name: list(what) for name, what in lead.references.items() if name not in present}
    for name in lead.known_hosts:
        if name not in present and _is_node_name(name):
            found.setdefault(name, []).append("/etc/pve/priv/known_hosts")
    for name in lead.keys:
        if name in found or name in folders:
            found.setdefault(name, []).append("/etc/pve/priv/authorized_keys")
    return found


def _is_node_name(name: str) -> bool:
    if name.startswith(("|", "[", "@")) or "." in name:
        return False  # hashed, with a port, a marker; a node's name has no domain
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return True
    return False
