"""Whose ``/etc/pve`` would win when a node joins: pmxcfs takes the copy that saw the most writes, whoever has it. Pure.

Not the newest ``corosync.conf`` decides, but the version of the tree in ``config.db``, which every write raises; among
equals the later one. A node that wrote alone for long (``pvecm expected 1``, ``pmxcfs -l``) overwrites the cluster's.
"""

from __future__ import annotations

from provisioner.repair.facts import NodeFacts


def has_newer_pve(node: NodeFacts, lead: NodeFacts) -> bool:
    """Whether the node's ``/etc/pve`` is known to win over the cluster's."""
    if node.database is None or lead.database is None:
        return False
    return node.database > lead.database


def pve_age_words(node: NodeFacts, lead: NodeFacts) -> str:
    """How many writes each copy saw, in a line; the times of the last ones decide among equals."""
    if node.database is None or lead.database is None:
        unread = [host for host in (node, lead) if host.database is None]
        return "; ".join(f"{host.name}: {host.unread.get('database', 'not known')}" for host in unread)
    own_writes, own_time = node.database
    writes, time = lead.database
    words = f"writes to it: {own_writes} on {node.name}, {writes} on {lead.name}"
    if own_writes == writes and own_time != time:
        return f"{words}, last written {own_time - time:+d} s apart"
    return words
