"""``provision cluster check`` on real corosync: each kind of stale node is told, whoever is asked."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.doubles.corosync.cluster import Cluster
from tests.doubles.corosync.stale import Mode
from tests.integration.cluster.cluster_box import CONDITIONS, assert_told, check

pytestmark = [pytest.mark.incus, pytest.mark.corosync]

ELSEWHERE = ("version", "added", "readdr", "key")
"""Those are told on three nodes in ``test_cluster_rejoin``, before they are brought back."""


def assert_healthy(cluster: Cluster, votes: Sequence[int]) -> None:
    found = check(cluster, "pve2")
    assert (found.code, found.conditions) == (0, [("healthy", "")]), found.raw
    assert [one["votes"] for one in found.result["nodes"]] == list(votes)
    assert found.result["votes"]["present"] == found.result["votes"]["expected"] == sum(votes)


def test_healthy_cluster_is_healthy(cluster: Cluster) -> None:
    assert_healthy(cluster, [1, 1, 1])


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(one, marks=[] if one == "removed" else pytest.mark.slow)
        for one in CONDITIONS
        if one not in ELSEWHERE
    ],
)
def test_stale_node_is_told_from_a_good_node_and_from_itself(cluster: Cluster, mode: Mode) -> None:
    cluster.make_stale("pve3", mode)
    assert_told(cluster, mode)


@pytest.mark.slow
@pytest.mark.parametrize("votes", [(1, 1, 1, 1, 1), (3, 1, 1, 1, 1)])
def test_healthy_cluster_of_five_is_healthy(cluster_of_five: Cluster, votes: tuple[int, ...]) -> None:
    cluster_of_five.heal(votes)
    assert_healthy(cluster_of_five, votes)


@pytest.mark.slow
@pytest.mark.parametrize("votes", [(1, 1, 1, 1, 1), (3, 1, 1, 1, 1)])
@pytest.mark.parametrize("mode", [mode for mode in CONDITIONS if mode != "added"])  # of five it may also be "behind"
def test_stale_node_of_five_is_told(cluster_of_five: Cluster, mode: Mode, votes: tuple[int, ...]) -> None:
    cluster_of_five.heal(votes)
    cluster_of_five.make_stale("pve3", mode)
    assert_told(cluster_of_five, mode)


@pytest.mark.slow
def test_votes_decide_which_half_has_quorum(cluster_of_five: Cluster) -> None:
    cluster_of_five.heal((3, 1, 1, 1, 1))
    cluster_of_five.power_off("pve3", "pve4", "pve5")
    found = check(cluster_of_five, "pve2")
    assert found.result["votes"] == {"present": 4, "expected": 7, "needed": 4}
    assert found.conditions == [("offline", "pve3"), ("offline", "pve4"), ("offline", "pve5")], found.raw
