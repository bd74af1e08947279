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
        return _unread_words(node, lead)
    own_writes, own_time = node.database
    writes, time = lead.database
    words = f"writes to it: {own_writes} on {node.name}, {writes} on {lead.name}"
    if own_writes == writes and own_time != time:
        words += f", last written {own_time - time:+d} s apart"
    return words


def _unread_words(*nodes: NodeFacts) -> str:
    """Why the databases that could not be read are not known."""
    words = list[str]()
    for node in nodes:
        if node.database is None:
            why = node.unread.get("database", "not known")
            words.append(f"{node.name}: {why}")
    return "; ".join(words)
