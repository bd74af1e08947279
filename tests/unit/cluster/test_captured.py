"""The diagnosis from the logs of real corosync nodes: healthy, and the six kinds of stale node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.cluster.diagnosis import diagnose
from provisioner.cluster.facts import ClusterFacts, Condition, Silent
from provisioner.cluster.read_node import read_node
from tests.corosync_captures import KINDS, NODES, look_answer, looks

EXPECTED = {
    "healthy": [(Condition.HEALTHY, "")],
    "version": [(Condition.BEHIND, "n3")],
    "moved": [(Condition.PEERS_MOVED, "n3")],
    "readdr": [(Condition.NODE_MOVED, "n3")],
    # Its heir was written into the list, and never existed.
    "idreuse": [(Condition.ID_REUSED, "n3"), (Condition.OFFLINE, "new3"), (Condition.DO_NOT_POWER_ON, "new3")],
    "removed": [(Condition.REMOVED, "n3")],
    "key": [(Condition.KEY_CHANGED, "n3")],
}
STORIES = {
    "added": [(Condition.DISTURBING, "pve3")],
    "added-mended": [(Condition.HEALTHY, "")],
    "added-off": [(Condition.OFFLINE, "pve3"), (Condition.DO_NOT_POWER_ON, "pve3")],
    "key-mended": [(Condition.HEALTHY, "")],
    "key-mended-off": [(Condition.OFFLINE, "pve3")],
}
"""Four nodes: pve4 was added while pve3 was off, which came back; pve3 had an old key, was mended and shut down."""


def story_facts(story: str, asked: str = "pve1", without: tuple[str, ...] = ()) -> ClusterFacts:
    nodes = [read_node(text, f"10.0.0.{name[-1]}") for name, text in looks(story).items() if name not in without]
    there = {one.name for one in nodes}
    silent = [Silent(f"pve{n}", f"10.0.0.{n}", "ssh timed out") for n in range(1, 5) if f"pve{n}" not in there]
    return ClusterFacts(asked, tuple(nodes), tuple(silent))


def facts(kind: str, asked: str = "n1", answering: tuple[str, ...] = NODES) -> ClusterFacts:
    nodes = tuple(read_node(look_answer(kind, name), f"10.77.0.1{name[1]}") for name in answering)
    silent = tuple(Silent(name, f"10.77.0.1{name[1]}", "ssh timed out") for name in NODES if name not in answering)
    return ClusterFacts(asked, nodes, silent)


@pytest.mark.parametrize("asked", ["n1", "n3"])
@pytest.mark.parametrize("kind", KINDS)
def test_kind_is_told_by_what_corosync_wrote(kind: str, asked: str) -> None:
    found = diagnose(facts(kind, asked))
    assert [(one.condition, one.node) for one in found] == EXPECTED[kind]


@pytest.mark.parametrize("story", STORIES)
def test_a_line_of_the_log_counts_until_it_is_contradicted(story: str) -> None:
    found = diagnose(story_facts(story))
    assert [(one.condition, one.node) for one in found] == STORIES[story]


def test_a_node_that_was_off_while_another_was_added_is_to_be_stopped_at_once() -> None:
    (found,) = diagnose(story_facts("added"))
    assert found.advice.startswith("Stop corosync on pve3 now, on it (root@10.0.0.3): systemctl stop corosync")
    assert "while it was off pve4 was added" in found.message
    assert "does not end itself" in found.message
    assert any("memberships formed anew" in line and line.startswith("pve1: ") for line in found.evidence)
    assert found.runbook == "stale-corosync-behind"


def test_a_node_that_disturbs_the_others_and_does_not_answer_is_on() -> None:
    (found,) = diagnose(story_facts("added", without=("pve3",)))
    assert (found.condition, found.node) == (Condition.DISTURBING, "pve3")
    assert "pve1: link 0 to node 3 (pve3): connected" in found.evidence
    assert found.advice.startswith("Stop corosync on pve3 now")


def test_power_on_tells_a_member_that_was_added_from_a_version_that_rose() -> None:
    (_, found) = diagnose(story_facts("added-off"))
    assert "pve4 was added since" in found.message
    assert "does not end itself" in found.message
    assert "with its network cut off" in found.advice
    nodes = story_facts("key-mended-off").nodes
    newer = tuple(replace(one, running_version=(one.running_version or 0) + 2) for one in nodes)
    told = diagnose(ClusterFacts("pve1", newer, story_facts("key-mended-off").silent))
    (found,) = [one for one in told if one.condition is Condition.DO_NOT_POWER_ON]
    assert found.message == "do not power it on: 2 versions behind, its corosync will end itself"
