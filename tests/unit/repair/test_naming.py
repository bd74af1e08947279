"""The words of the command line that name a node, and those that do not: each is answered with what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.repair.facts import ClusterFacts, NodeFacts, Silent
from provisioner.repair.naming import require_lead, require_node, require_other
from provisioner.values.errors import InputError, PreflightError, ProvisionError, UnavailableError
from tests.unit.repair.rejoin_case import situation

SEEN = situation({"node": {}})
FACTS = SEEN.facts


def facts(lead: NodeFacts = SEEN.lead, *others: NodeFacts, silent: tuple[Silent, ...] = ()) -> ClusterFacts:
    return ClusterFacts("pve1", (lead, *others), silent)


def test_a_node_that_answers_is_found_by_its_name() -> None:
    assert require_node(FACTS, "pve3") is SEEN.node


@pytest.mark.parametrize(
    ("word", "seen", "kind", "said"),
    [
        ("pve33", FACTS, InputError, 'Did you mean "pve3"?'),
        ("other", FACTS, InputError, "Known nodes: pve1, pve2, pve3"),
        ("10.0.0.3", FACTS, InputError, "Name the node: pve3."),
        ("192.168.7.3", FACTS, InputError, "Name the node: pve3."),
        ("10.0.0.9", facts(silent=(Silent("pve9", "10.0.0.9", "no route"),)), InputError, "Name the node: pve9."),
        ("pve9", facts(silent=(Silent("pve9", "10.0.0.9", "no route"),)), UnavailableError, "10.0.0.9: no route"),
        ("pve9", facts(replace(SEEN.lead, guests={"pve9": ()})), PreflightError, "provision cluster forget pve9"),
        ("pve9", facts(replace(SEEN.lead, guests={"pve9": ()})), PreflightError, "rejoin pve9 root@ITS-ADDRESS"),
        (
            "pve2",
            facts(replace(SEEN.lead, running=SEEN.lead.running[::2])),
            PreflightError,
            "is a member and it is none",
        ),
    ],
)
def test_a_word_that_names_no_stale_node_is_answered(
    word: str, seen: ClusterFacts, kind: type[ProvisionError], said: str
) -> None:
    with pytest.raises(kind) as caught:
        require_node(seen, word)
    assert said in str(caught.value)


def test_the_node_that_was_asked_is_not_stale_by_its_own_word() -> None:
    with pytest.raises(PreflightError, match="it is the node that was asked"):
        require_other(SEEN.lead, FACTS)
    require_other(SEEN.node, FACTS)
    require_other(SEEN.lead, replace(FACTS, asked="pve3"))


def test_a_single_node_proves_nothing() -> None:
    alone = NodeFacts("pve1", "10.0.0.1", units={"corosync": "inactive", "pve-cluster": "active"})
    with pytest.raises(PreflightError, match="pve1 is not in a cluster"):
        require_lead(ClusterFacts("pve1", (alone,)))


def test_without_quorum_nobody_is_believed() -> None:
    with pytest.raises(PreflightError, match="no node that answers has quorum") as caught:
        require_lead(ClusterFacts("pve3", (SEEN.node,), (Silent("pve1", "10.0.0.1", "no route"),)))
    assert "pve3: corosync does not run; pve1: no route" in caught.value.details
    assert "lost-quorum" in caught.value.resolution
