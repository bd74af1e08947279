"""Whose ``/etc/pve`` would win when a node joins: pmxcfs takes the copy that saw the most writes, whoever has it. Pure.

Not the newest ``corosync.conf`` decides, but the version of the tree in ``config.db``, which every write raises; among
equals the later one. A node that wrote alone for long (``pvecm expected 1``, ``pmxcfs -l``) overwrites the cluster's.
"""

from __future__ import annotations

from provisioner.repair.facts import NodeFacts


def has_newer_pve(node: NodeFacts, lead: NodeFacts) -> bool:
    """Whether the node's ``/etc/pve`` is known to win over the cluster's."""
    return node.database is not None and lead.database is not None and node.database > lead.database


def pve_age_words(node: NodeFacts, lead: NodeFacts) -> str:
    """How many writes each copy saw, in a line; the times of the last ones decide among equals."""
    if node.database is None or lead.database is None:
        unread = [one for one in (node, lead) if one.database is None]
        return "; ".join(f"{one.name}: {one.unread.get('database', 'not known')}" for one in unread)
    (here, when), (there, then) = node.database, lead.database
    later = "" if here != there or when == then else f", last written {when - then:+d} s apart"
    return f"writes to it: {here} on {node.name}, {there} on {lead.name}{later}"
