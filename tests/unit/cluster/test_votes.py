"""Votes as corosync counts them, and who can be lost, by the words of corosync-quorumtool."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.cluster.facts import CorosyncConf, Device, NodeFacts
from provisioner.cluster.quorum import make_quorum_plan
from provisioner.cluster.read_corosync import read_corosync_conf
from provisioner.cluster.rejoin import nodes_after
from provisioner.cluster.restore import require_spare
from provisioner.cluster.votes import can_lose, device_votes, expected_votes, needed_votes
from provisioner.values.errors import PreflightError
from tests.cluster_looks import State, corosync_conf, facts_of
from tests.unit.cluster.rejoin_case import read_case, situation


def conf_of(state: State) -> CorosyncConf:
    return read_corosync_conf(corosync_conf(state))


def node_of(state: State) -> NodeFacts:
    return facts_of(state).nodes[0]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"nodes": 2}, 2),
        ({"nodes": 2, "votes": [3, 1]}, 4),
        ({"nodes": 2, "device": 1}, 3),
        ({"nodes": 3, "device": 2, "device_of": 2}, 5),
        ({"nodes": 2, "device": 1, "quorum": {"expected_votes": 7}}, 7),
        ({"nodes": 2, "quorum": {"expected_votes": 0}}, 2),
    ],
)
def test_what_a_list_expects(state: State, expected: int) -> None:
    assert expected_votes(conf_of(state)) == expected


def test_a_device_whose_votes_are_not_written_has_one_less_than_the_nodes() -> None:
    conf = conf_of({"nodes": 4, "device": 1})
    silent = {key: value for key, value in conf.settings.items() if key != "quorum.device.votes"}
    assert device_votes(replace(conf, settings=silent)) == 3


@pytest.mark.parametrize(
    ("expected", "total", "voters", "two_node", "needed"),
    [
        (3, 3, 3, False, 2),
        (4, 2, 2, False, 3),
        (1, 3, 3, False, 2),
        (2, 1, 1, True, 1),
        (2, 2, 2, True, 1),
        (3, 3, 3, True, 2),
    ],
)
def test_what_is_needed(expected: int, total: int, voters: int, needed: int, *, two_node: bool) -> None:
    assert needed_votes(expected, total, voters, two_node=two_node) == needed


@pytest.mark.parametrize(
    ("state", "names"),
    [
        ({"nodes": 3}, ["pve1", "pve2", "pve3"]),
        ({"nodes": 3, "away": ["pve3"]}, []),
        ({"nodes": 2}, []),
        ({"nodes": 2, "quorum": {"two_node": 1}}, ["pve1", "pve2"]),
        ({"nodes": 2, "device": 1}, ["pve1", "pve2", "QDevice"]),
        ({"nodes": 2, "device": 0}, []),
        ({"nodes": 2, "device": 1, "away": ["pve2"]}, []),
        ({"nodes": 5, "votes": [3, 1, 1, 1, 1], "away": ["pve4", "pve5"]}, ["pve2", "pve3"]),
    ],
)
def test_who_can_be_lost(state: State, names: list[str]) -> None:
    node = node_of(state)
    assert node.quorum is not None
    assert list(can_lose(node.quorum, node.running)) == names


def test_a_device_is_no_node_of_a_partition() -> None:
    quorum = node_of({"nodes": 2, "device": 1}).quorum
    assert quorum is not None
    assert (quorum.present, quorum.device, quorum.total) == ({1: 1, 2: 1}, Device(1, 1, "A,V,NMW"), 3)
    away = node_of({"nodes": 2, "device": 0}).quorum
    assert away is not None
    assert (away.device, away.total, away.needed) == (Device(0, 1, "NA,NV,NMW"), 2, 2)


def test_a_device_is_not_counted_among_the_nodes_after_a_rejoin() -> None:
    assert nodes_after(situation(read_case("a-qdevice-votes"))) == 2


def test_a_node_is_spared_where_the_other_and_the_device_are_enough() -> None:
    require_spare(node_of({"nodes": 2, "device": 1}))
    require_spare(node_of({"nodes": 2, "quorum": {"two_node": 1}}))
    with pytest.raises(PreflightError, match="would lose quorum"):
        require_spare(node_of({"nodes": 2, "device": 0}))


def test_a_part_decides_with_its_votes_and_those_of_the_device() -> None:
    state = {"nodes": 4, "device": 1, "away": ["pve3", "pve4"]}
    assert make_quorum_plan(facts_of(state), ["pve3", "pve4"]).votes == 3
