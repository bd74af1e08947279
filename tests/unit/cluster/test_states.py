"""States of a cluster, from what its nodes answer to what is told: no state may be told wrongly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.cluster.diagnosis import diagnose, is_healthy
from provisioner.cluster.facts import CorosyncConf
from provisioner.cluster.forget_plan import Leftovers, target_of
from provisioner.cluster.rejoin_preconditions import require_node
from provisioner.cluster.text import cluster_content, diagnosis_text
from provisioner.cluster.view import list_faults
from provisioner.values.errors import PreflightError
from tests.case_files import read_cases
from tests.cluster_facts import members
from tests.cluster_looks import facts_of

STATES: dict[str, dict[str, Any]] = read_cases("cluster/states")


@pytest.mark.parametrize("name", STATES)
def test_the_state_is_told_as_it_is(name: str) -> None:
    state = STATES[name]
    facts = facts_of(state)
    found = diagnose(facts, state.get("last", {}))
    text = "\n".join(map(diagnosis_text, found))
    told = [[one.condition.value, one.node] for one in found]
    assert told == state["told"], text
    assert is_healthy(found) == (told == [["healthy", ""]])
    if "can_lose" in state:
        assert list(cluster_content(facts, found)["can_lose"]) == state["can_lose"], text
    for words in state.get("words", ()):
        assert words in text
    for words in state.get("never", ()):
        assert words.lower() not in text.lower()


def test_there_are_states_enough_to_speak_of_all() -> None:
    assert len(STATES) >= 40


@pytest.mark.parametrize("word", ["pve2", "nuc"])
def test_a_renamed_node_is_not_joined_anew(word: str) -> None:
    with pytest.raises(PreflightError, match="host name of pve2 was changed to nuc") as caught:
        require_node(facts_of(STATES["a renamed node that is joined"]), word)
    assert "hostnamectl set-hostname pve2" in caught.value.resolution


def test_a_node_that_the_list_has_under_another_name_is_not_joined_anew() -> None:
    facts = facts_of({"nodes": 3, "members": {"pve3": {"name": "nuc"}}, "nodes_say": {"pve3": {"dead": True}}})
    old = replace(facts.nodes[2], name="pve3", hostname="", local_conf=CorosyncConf("homelab", 6, members(3)))
    with pytest.raises(PreflightError, match="the cluster's list has its id and addresses as nuc"):
        require_node(replace(facts, nodes=(*facts.nodes[:2], old)), "pve3")


def test_a_node_whose_id_and_address_a_new_member_has_was_replaced_and_is_not_that_one() -> None:
    facts = facts_of({"nodes": 3, "members": {"pve3": {"name": "pve4"}}, "away": ["pve3"]})
    before = facts_of(STATES["three nodes"]).nodes[2]
    gone = replace(before, address="10.0.0.9", addresses=("10.0.0.9",), pve_conf=None, quorum=None)
    gone = replace(gone, running_version=None)
    found = diagnose(replace(facts, nodes=(*facts.nodes, gone)))
    told = {one.condition.value for one in found if one.node == "pve3"}
    assert told & {"removed", "id-reused"}
    assert "renamed" not in told


def test_votes_of_a_list_that_was_not_taken_up_were_lowered_by_nobody() -> None:
    facts = facts_of(STATES["three nodes"])
    longer = CorosyncConf("homelab", 8, members(4))
    nodes = [replace(node, local_conf=longer, pve_conf=longer) for node in facts.nodes]
    found = diagnose(replace(facts, nodes=tuple(nodes)))
    assert {one.condition.value for one in found} == {"behind"}


def test_members_without_names_are_called_by_their_addresses_and_not_alike() -> None:
    nameless = tuple(replace(one, name=one.addresses[0]) for one in members(3))
    assert list(list_faults(CorosyncConf("homelab", 7, nameless))) == []


def test_the_name_of_a_renamed_node_is_not_forgotten() -> None:
    with pytest.raises(PreflightError, match="that is the host name of pve2 now"):
        target_of(facts_of(STATES["a renamed node that has its folder already"]), "nuc", Leftovers())
