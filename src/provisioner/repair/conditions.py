"""What can be wrong with a cluster, by name: the words that diagnosis, runbooks, reports and ``--json`` share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Condition(StrEnum):
    """One state of a node or of a cluster; the value stands in JSON and in runbooks' ``conditions``."""

    HEALTHY = "healthy"
    UNCLUSTERED = "unclustered"
    BEHIND = "behind"
    """Only its list is older: same key, same id, same addresses."""
    DISTURBING = "disturbing"
    """It hears some members and not all, so that the ring never closes and writes to ``/etc/pve`` hang everywhere."""
    KEY_CHANGED = "key-changed"
    PEERS_MOVED = "peers-moved"
    """The cluster's nodes have other addresses than the node's list says: it rejects their packets."""
    NODE_MOVED = "node-moved"
    """The cluster knows the node by another address than it has: they reject its packets."""
    REMOVED = "removed"
    ID_REUSED = "id-reused"
    COROSYNC_DEAD = "corosync-dead"
    PARTITION = "partition"
    NO_QUORUM = "no-quorum"
    OFFLINE = "offline"
    """A member that does not answer: maybe off, maybe cut off."""
    DO_NOT_POWER_ON = "do-not-power-on"
    GHOST = "ghost"
    GHOST_WITH_GUESTS = "ghost-with-guests"
    LEFTOVERS = "leftovers"
    CLOCK_SKEW = "clock-skew"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One condition of ``node`` (its name; empty: of the cluster), in a sentence, with the lines that prove it.

    ``runbook``: the id of the one that would mend it; ``advice``: what to do now.
    """

    condition: Condition
    node: str
    message: str
    evidence: tuple[str, ...] = ()
    runbook: str = ""
    advice: str = ""
