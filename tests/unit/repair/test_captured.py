"""The diagnosis from the logs of real corosync nodes: healthy, and the six kinds of stale node."""

from __future__ import annotations

import pytest

from provisioner.repair.conditions import Condition
from provisioner.repair.diagnosis import diagnose
from provisioner.repair.facts import ClusterFacts, Silent
from provisioner.repair.reading import read_node
from tests.corosync_captures import KINDS, NODES, look_answer

EXPECTED = {
    "healthy": [(Condition.HEALTHY, "")],
    "version": [(Condition.BEHIND, "n3")],
    "moved": [(Condition.PEERS_MOVED, "n3")],
    "readdr": [(Condition.NODE_MOVED, "n3")],
    # Its heir was written into the list, and never existed.
    "idreuse": [
        (Condition.ID_REUSED, "n3"),
        (Condition.OFFLINE, "new3"),
        (Condition.DO_NOT_POWER_ON, "new3"),
    ],
    "removed": [(Condition.REMOVED, "n3")],
    "key": [(Condition.KEY_CHANGED, "n3")],
}


def facts(kind: str, asked: str = "n1", answering: tuple[str, ...] = NODES) -> ClusterFacts:
    nodes = tuple(read_node(look_answer(kind, name), f"10.77.0.1{name[1]}") for name in answering)
    silent = tuple(Silent(name, f"10.77.0.1{name[1]}", "ssh timed out") for name in NODES if name not in answering)
    return ClusterFacts(asked, nodes, silent)


@pytest.mark.parametrize("asked", ["n1", "n3"])
@pytest.mark.parametrize("kind", KINDS)
def test_kind_is_told_by_what_corosync_wrote(kind: str, asked: str) -> None:
    found = diagnose(facts(kind, asked))
    assert [(one.condition, one.node) for one in found] == EXPECTED[kind]
