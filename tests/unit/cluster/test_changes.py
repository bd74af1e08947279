"""What is a change, and which ones are for the worse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.cluster.facts import ClusterFacts, CorosyncConf, Signatures
from provisioner.cluster.watch import Snapshot, changes, snapshot
from tests.cluster_facts import cluster, members
from tests.cluster_looks import State, facts_of

LINE = "08:00:01 rx: Packet rejected from 10.0.0.9:5405"


def seen(facts: ClusterFacts, before: Snapshot | None = None) -> Snapshot:
    return snapshot(facts, "homelab", before)


def told(before: ClusterFacts, after: ClusterFacts) -> list[tuple[str, str, bool]]:
    first = seen(before)
    return [(one.kind, one.node, one.is_worse) for one in changes(first, seen(after, first))]


def with_log(line: str) -> ClusterFacts:
    log = Signatures(rejected={"10.0.0.9": 1}, lines=(line,))
    return cluster(changed={"pve1": {"signatures": log}})


def newer(version: int, *names: str) -> dict[str, dict[str, Any]]:
    conf = CorosyncConf("homelab", version, members(3))
    return {name: {"running_version": version, "local_conf": conf, "pve_conf": conf} for name in names}


def test_the_same_twice_is_no_change() -> None:
    assert told(cluster(), cluster()) == []


def test_node_that_leaves_is_worse_and_its_return_is_not() -> None:
    assert told(cluster(), cluster(off=("pve3",))) == [("membership", "pve3", True), ("answer", "pve3", True)]
    assert told(cluster(off=("pve3",)), cluster()) == [("membership", "pve3", False), ("answer", "pve3", False)]


def test_a_lost_quorum_is_one_line() -> None:
    assert told(cluster(), cluster(off=("pve2", "pve3")))[0] == ("quorum", "", True)
    assert told(cluster(off=("pve2", "pve3")), cluster())[0] == ("quorum", "", False)


def test_quorum_is_told_with_votes() -> None:
    first = seen(cluster(off=("pve2", "pve3")))
    assert changes(first, seen(cluster(), first))[0].message == "quorum is back: 3 of 3 votes, 2 needed"


def test_new_version_is_no_harm_and_a_node_that_stays_behind_is() -> None:
    everybody = cluster(changed=newer(8, "pve1", "pve2", "pve3"))
    assert told(cluster(), everybody) == [("version", "", False)]
    two = cluster(changed=newer(8, "pve1", "pve2"))
    assert told(cluster(), two) == [("version", "", False), ("version", "pve3", True)]
    assert told(two, two) == []
    assert told(two, everybody) == [("version", "pve3", False)]


def test_member_that_is_added_or_removed_is_told() -> None:
    assert told(cluster(2), cluster(3))[0] == ("membership", "pve3", False)
    assert told(cluster(3), cluster(2))[0] == ("membership", "pve3", False)


def test_rejected_packets_are_told_when_they_begin_and_when_they_end() -> None:
    quiet = seen(cluster())
    first = seen(with_log(LINE), quiet)
    assert [(one.kind, one.node, one.is_worse) for one in changes(quiet, first)] == [("rejected", "pve1", True)]
    second = seen(with_log(LINE.replace("01", "07")), first)
    assert changes(first, second) == ()  # it goes on
    third = seen(with_log(LINE.replace("01", "07")), second)
    assert [(one.kind, one.is_worse) for one in changes(second, third)] == [("rejected", False)]
    fourth = seen(cluster(), third)  # corosync was restarted: its log is empty
    assert changes(third, fourth) == ()


def test_a_ring_that_does_not_rest_is_told_once_and_when_it_ends() -> None:
    restless = cluster(changed={"pve1": {"signatures": Signatures(reformed=3)}})
    assert told(cluster(), restless) == [("ring", "", True)]
    assert told(restless, restless) == []
    assert told(restless, cluster()) == [("ring", "", False)]


def test_every_change_is_told_both_ways() -> None:
    one = seen(cluster())
    for other in (
        replace(one, is_quorate=False),
        replace(one, version=9),
        replace(one, members={**one.members, "pve3": False}),
    ):
        assert changes(one, other)
        assert changes(other, one)


@pytest.mark.parametrize(
    ("worse", "words"),
    [
        ({"nodes": 2, "device": 0}, "the QDevice gives no vote on pve1, pve2; it can lose no node now"),
        ({"nodes": 2, "device": 1, "links": 2, "down": [[1, "pve1", "pve2"]]}, "link 1 is down between pve1 and pve2"),
        ({"nodes": 2, "device": 1, "quorum": {"expected_votes": 4}}, "corosync.conf says expected_votes: 4"),
        ({"nodes": 2, "device": 1, "expected": 1}, "the expected votes were lowered by hand to 1, the list has 3"),
    ],
)
def test_each_loss_of_redundancy_is_told_once_and_when_it_ends(worse: State, words: str) -> None:
    well = {"nodes": 2, "device": 1, "links": worse.get("links", 1)}
    before, after = seen(facts_of(well)), seen(facts_of(worse))
    (lost,) = changes(before, after)
    assert (lost.kind, lost.is_worse) == ("redundancy", True)
    assert lost.message.startswith(words)
    (regained,) = changes(after, before)
    assert (regained.kind, regained.is_worse, regained.message.startswith(f"no more: {words.partition(';')[0]}")) == (
        "redundancy", False, True,
    )  # fmt: skip
    assert changes(after, after) == ()
