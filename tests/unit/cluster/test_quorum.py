"""Deciding alone: only when every other member is named, silent everywhere, and not joined; votes are counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.cluster.facts import ClusterFacts, CorosyncConf, Member, NodeFacts, Quorum, Sign, Silent
from provisioner.cluster.quorum import absent_members, make_quorum_plan
from provisioner.values.errors import InputError, PreflightError

VOTES = (3, 1, 1, 1, 1)
CONF = CorosyncConf("home", 4, tuple(Member(f"pve{n}", n, VOTES[n - 1], (f"10.0.0.{n}",)) for n in range(1, 6)))


def facts(*present: int, asked: int = 4, quorate: bool = False) -> ClusterFacts:
    """Five nodes, the first with three votes; ``present`` are in the asked one's part, the others silent."""
    seen = {one: VOTES[one - 1] for one in present}
    quorum = Quorum(is_quorate=quorate, expected=7, total=sum(seen.values()), needed=4, present=seen)
    nodes = tuple(
        NodeFacts(f"pve{one}", f"10.0.0.{one}", local_conf=CONF, quorum=quorum, joined=dict.fromkeys(present, 4))
        for one in present
    )
    silent = tuple(
        Silent(member.name, member.addresses[0], "timed out") for member in CONF.members if member.nodeid not in present
    )
    return ClusterFacts(f"pve{asked}", nodes, silent)


def signs(*alive: int) -> list[Sign]:
    """Every node was tried; those that are ``alive`` answered."""
    return [Sign(f"10.0.0.{one}", "ping", is_alive=one in alive, said="x") for one in range(1, 6)]


def test_the_votes_that_are_there_are_expected() -> None:
    found = make_quorum_plan(facts(4, 5), ["pve1", "pve2", "pve3"], signs())
    assert (found.votes, found.off_ids, found.is_needed, found.objections) == (2, (1, 2, 3), True, ())
    heavy = make_quorum_plan(facts(1, asked=1), ["pve2", "pve3", "pve4", "pve5"], signs())
    assert (heavy.votes, heavy.objections) == (3, ())


def test_each_other_member_is_to_be_named() -> None:
    found = make_quorum_plan(facts(4, 5), ["pve1"], signs())
    assert [one.rpartition(": ")[2] for one in found.objections] == ["--off pve2", "--off pve3"]


def test_a_sign_of_life_wins_over_the_user_s_word() -> None:
    (said,) = make_quorum_plan(facts(4, 5), ["pve1", "pve2", "pve3"], signs(2)).objections
    assert said == "Something answers at 10.0.0.2, an address of pve2 (ping: x)."


def test_what_nobody_tried_is_not_proved() -> None:
    said = make_quorum_plan(facts(4, 5), ["pve1", "pve2", "pve3"]).objections
    assert [one.startswith("Nobody has tried") for one in said] == [True, True, True]


def test_the_other_part_of_a_partition_is_no_reason() -> None:
    both = facts(4, 5)
    other = NodeFacts("pve1", "10.0.0.1", local_conf=CONF)
    seen = replace(both, nodes=(*both.nodes, other))
    said = make_quorum_plan(seen, ["pve1", "pve2", "pve3"], signs(1)).objections
    assert said[0].startswith("pve1 is running: it answers by ssh.")


def test_a_node_that_is_there_is_not_off() -> None:
    (said,) = make_quorum_plan(facts(4, 5), ["pve1", "pve2", "pve3", "pve5"], signs()).objections
    assert said.startswith("pve5 is not off")


def test_a_quorate_node_needs_nothing() -> None:
    found = make_quorum_plan(facts(1, 2, asked=1, quorate=True), ["pve3", "pve4", "pve5"], signs())
    assert not found.is_needed


def test_without_corosync_there_is_nothing_to_ask() -> None:
    dead = facts(4)
    seen = replace(dead, nodes=(replace(dead.nodes[0], quorum=None, joined={}),))
    (said,) = make_quorum_plan(seen, ["pve1"], signs()).objections
    assert said.startswith("corosync does not answer on pve4")


def test_names_that_are_no_members_and_hosts_that_are_in_no_cluster() -> None:
    with pytest.raises(InputError, match=r"The members are: pve1, pve2"):
        make_quorum_plan(facts(4), ["pve9"])
    with pytest.raises(PreflightError, match="it is in no cluster"):
        absent_members(ClusterFacts("x", (NodeFacts("x", "10.0.0.9"),)))
