"""The words of the command line that name a node, and those that do not: each is answered with what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.repair.facts import ClusterFacts, NodeFacts, Silent
from provisioner.repair.naming import require_lead, require_node, require_other
from provisioner.report.messages import error_text
from provisioner.values.errors import InputError, PreflightError, ProvisionError, UnavailableError
from tests.unit.repair.rejoin_case import situation

SEEN = situation({"node": {}})
FACTS = SEEN.facts


def facts(lead: NodeFacts = SEEN.lead, *others: NodeFacts, silent: tuple[Silent, ...] = ()) -> ClusterFacts:
    return ClusterFacts("pve1", (lead, *others), silent)


def test_a_node_that_answers_is_found_by_its_name() -> None:
    assert require_node(FACTS, "pve3") is SEEN.node


NO_ROUTE = facts(silent=(Silent("pve9", "10.0.0.9", "no route"),))
NO_LEAD = ClusterFacts("pve3", (SEEN.node,), (Silent("pve1", "10.0.0.1", "no route"),))
ALONE = NodeFacts("pve1", "10.0.0.1", units={"corosync": "inactive", "pve-cluster": "active"})
ANSWERED: dict[str, tuple[type[ProvisionError], Callable[[], object]]] = {
    "nearly a name": (InputError, lambda: require_node(FACTS, "pve33")),
    "no name": (InputError, lambda: require_node(FACTS, "other")),
    "an address": (InputError, lambda: require_node(FACTS, "10.0.0.3")),
    "another address": (InputError, lambda: require_node(FACTS, "192.168.7.3")),
    "an address of a silent node": (InputError, lambda: require_node(NO_ROUTE, "10.0.0.9")),
    "a silent node": (UnavailableError, lambda: require_node(NO_ROUTE, "pve9")),
    "a ghost": (PreflightError, lambda: require_node(facts(replace(SEEN.lead, guests={"pve9": ()})), "pve9")),
    "a member by its own list alone": (
        PreflightError,
        lambda: require_node(facts(replace(SEEN.lead, running=SEEN.lead.running[::2])), "pve2"),
    ),
    "the node that was asked": (PreflightError, lambda: require_other(SEEN.lead, FACTS)),
    "a single node": (PreflightError, lambda: require_lead(ClusterFacts("pve1", (ALONE,)))),
    "no quorum": (PreflightError, lambda: require_lead(NO_LEAD)),
}


@pytest.mark.parametrize(("kind", "ask"), ANSWERED.values(), ids=ANSWERED)
def test_a_word_that_names_no_stale_node_is_answered_with_what_to_do(
    kind: type[ProvisionError], ask: Callable[[], object], snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(kind) as caught:
        ask()
    assert error_text(caught.value) == snapshot


def test_a_stale_node_is_another_than_the_one_that_was_asked() -> None:
    require_other(SEEN.node, FACTS)
    require_other(SEEN.lead, replace(FACTS, asked="pve3"))
