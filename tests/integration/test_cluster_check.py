"""``provision cluster check`` on real corosync: each kind of stale node is told, whoever is asked."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.integration.cluster_box import check
from tests.lab.corosync.cluster import Cluster
from tests.lab.corosync.stale import Mode

pytestmark = [pytest.mark.incus, pytest.mark.corosync]

EXPECTED = {
    "version": "behind",
    "moved": "peers-moved",
    "readdr": "node-moved",
    "idreuse": "id-reused",
    "removed": "removed",
    "key": "key-changed",
}
HEIR = {"idreuse": [("offline", "new3"), ("do-not-power-on", "new3")]}
"""Who was given the id of the stale node, and never existed: it is off, as far as anybody knows."""


def assert_told(cluster: Cluster, mode: Mode) -> None:
    cluster.make_stale("pve3", mode)
    for asked in ("pve1", "pve3"):
        found = check(cluster, asked)
        assert found.code == 3, found.raw
        assert found.conditions == [(EXPECTED[mode], "pve3"), *HEIR.get(mode, [])], found.raw
        assert found.result["lead"] in {"pve1", "pve2", "pve4", "pve5"}


def assert_healthy(cluster: Cluster, votes: Sequence[int]) -> None:
    found = check(cluster, "pve2")
    assert (found.code, found.conditions) == (0, [("healthy", "")]), found.raw
    assert [one["votes"] for one in found.result["nodes"]] == list(votes)
    assert found.result["votes"]["present"] == found.result["votes"]["expected"] == sum(votes)


def test_healthy_cluster_is_healthy(cluster: Cluster) -> None:
    assert_healthy(cluster, [1, 1, 1])


@pytest.mark.parametrize("mode", EXPECTED)
def test_stale_node_is_told_from_a_good_node_and_from_itself(cluster: Cluster, mode: Mode) -> None:
    assert_told(cluster, mode)


@pytest.mark.slow
@pytest.mark.parametrize("votes", [(1, 1, 1, 1, 1), (3, 1, 1, 1, 1)])
def test_healthy_cluster_of_five_is_healthy(cluster_of_five: Cluster, votes: tuple[int, ...]) -> None:
    cluster_of_five.heal(votes)
    assert_healthy(cluster_of_five, votes)


@pytest.mark.slow
@pytest.mark.parametrize("votes", [(1, 1, 1, 1, 1), (3, 1, 1, 1, 1)])
@pytest.mark.parametrize("mode", EXPECTED)
def test_stale_node_of_five_is_told(cluster_of_five: Cluster, mode: Mode, votes: tuple[int, ...]) -> None:
    cluster_of_five.heal(votes)
    assert_told(cluster_of_five, mode)


@pytest.mark.slow
def test_votes_decide_which_half_has_quorum(cluster_of_five: Cluster) -> None:
    cluster_of_five.heal((3, 1, 1, 1, 1))
    for name in ("pve3", "pve4", "pve5"):
        cluster_of_five.power_off(name)
    found = check(cluster_of_five, "pve2")
    assert found.result["votes"] == {"present": 4, "expected": 7, "needed": 4}
    assert found.conditions == [("offline", "pve3"), ("offline", "pve4"), ("offline", "pve5")], found.raw
