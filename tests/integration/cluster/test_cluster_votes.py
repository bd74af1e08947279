"""Votes as real corosync counts them: ``cluster check`` says who can be lost, and rejoin and forget count the same."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path

import pytest

from tests.doubles.corosync.cluster import Cluster
from tests.integration.cluster.cluster_box import check
from tests.integration.cluster.rejoin_lab import Hand

pytestmark = [pytest.mark.incus, pytest.mark.corosync]

CONF = "/etc/pve/corosync.conf"


def set_quorum(cluster: Cluster, names: list[str], line: str) -> None:
    """The next list has this line in its section ``quorum``; ``names`` run with it when this returns."""
    node = cluster.node(names[0])
    text = node.read(CONF)
    version = int(re.findall(r"config_version: (\d+)", text)[0]) + 1
    text = re.sub(r"config_version: \d+", f"config_version: {version}", text)
    text = text.replace("provider: corosync_votequorum", f"provider: corosync_votequorum\n  {line}")
    node.write(f"{CONF}.new", text, 0o640)
    node.run(f"mv {CONF}.new {CONF}")
    for name in names:
        cluster.node(name).wait_for("told", f"corosync-cmapctl totem.config_version | grep -q '= {version}$'")


def test_second_of_two_nodes_is_joined_anew_while_the_first_stays_quorate(cluster: Cluster, tmp_path: Path) -> None:
    hand, first, second = Hand(cluster, tmp_path), cluster.node("pve1"), cluster.node("pve2")
    cluster.shut_down("pve3")
    first.run("pvecm delnode pve3; rm -rf /etc/pve/nodes/pve3")
    first.wait("of two", partial(first.is_quorate, 2))
    set_quorum(cluster, ["pve1", "pve2"], "two_node: 1")
    assert check(cluster, "pve1").result["can_lose"] == ["pve1", "pve2"]

    second.run("systemctl stop corosync")
    first.wait("alone", partial(first.is_quorate, 1))
    second.write("/etc/corosync/authkey", os.urandom(256), 0o400)
    found = check(cluster, "pve1")
    assert (found.result["votes"], found.result["can_lose"]) == ({"present": 1, "expected": 2, "needed": 1}, [])
    with cluster.quorum_tracker(["pve1"]) as tracker:
        ended = hand.rejoin("pve2", "--yes")
    assert ended.code == 0, ended.said
    assert "1 votes without it, 1 of 2 needed while it joins (two_node: one of two is enough)" in ended.said
    assert tracker.lost == []
    assert second.is_quorate(2)


def test_expected_votes_that_are_not_those_of_the_members_are_told(cluster: Cluster) -> None:
    names, first = ["pve1", "pve2", "pve3"], cluster.node("pve1")
    assert check(cluster, "pve1").result["can_lose"] == names
    set_quorum(cluster, names, "expected_votes: 4")
    first.wait_for("expecting 4", "corosync-quorumtool -s | grep -qE '^Expected votes: +4$'")
    found = check(cluster, "pve1")
    assert (found.code, found.conditions, found.result["can_lose"]) == (3, [("degraded", "")], []), found.raw
    assert "expected_votes: 4, and all members together have 3 votes" in found.of("degraded")["message"]
    cluster.node("pve3").run("systemctl stop corosync")
    first.wait("without quorum", lambda: not first.is_quorate())


@pytest.mark.slow
def test_all_members_together_without_quorum_are_not_told_to_come_back(cluster: Cluster) -> None:
    first = cluster.node("pve1")
    set_quorum(cluster, ["pve1", "pve2", "pve3"], "expected_votes: 7")
    first.wait("without quorum", lambda: not first.is_quorate())
    found = check(cluster, "pve1").of("no-quorum")
    assert "corosync.conf expects 7 votes, and all members together have 3" in found["message"]
    command = re.search(r"pvecm expected \d+", found["advice"])
    assert command is not None
    first.run(command[0])
    first.wait("quorate", partial(first.is_quorate, 3))


@pytest.mark.slow
def test_expected_votes_that_were_lowered_by_hand_end_when_the_list_is_read_anew(
    cluster: Cluster, tmp_path: Path
) -> None:
    hand, first = Hand(cluster, tmp_path), cluster.node("pve1")
    cluster.shut_down("pve2", "pve3")
    first.wait("without quorum", lambda: not first.is_quorate())
    first.run("pvecm expected 1")
    first.wait("quorate", partial(first.is_quorate, 1))
    found = check(cluster, "pve1")
    assert "lowered by hand to 1, the list has 3" in found.of("degraded")["message"]
    refused = hand.run("cluster", "forget", "pve3", hand.host(), "--off-for-good", "pve3", "--yes")
    assert refused.code == 4, refused.said
    assert "Without pve3 the list has 2 votes, 2 are needed, and 1 are there" in refused.said
    first.run("pvecm delnode pve3")
    first.wait("without quorum", lambda: not first.is_quorate())


@pytest.mark.slow
@pytest.mark.parametrize(("lost", "stays"), [("pve2", True), ("pve1", False)])
def test_quorum_stays_when_a_node_goes_that_can_be_lost(cluster: Cluster, lost: str, *, stays: bool) -> None:
    cluster.heal(votes=(3, 1, 1))
    assert (lost in check(cluster, "pve3").result["can_lose"]) == stays
    cluster.shut_down(lost)
    assert cluster.node("pve3").is_quorate() == stays
