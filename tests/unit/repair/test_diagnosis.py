"""What is wrong with a cluster, from facts: each condition, and that the unknown is never healthy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.repair.conditions import Condition, Diagnosis
from provisioner.repair.diagnosis import diagnose, is_healthy
from provisioner.repair.facts import (
    ClusterFacts,
    CorosyncConf,
    Guest,
    Link,
    NodeFacts,
    Pmxcfs,
    Quorum,
    Signatures,
    Silent,
)
from tests.cluster_facts import KEY, VERSION, cluster, dead, member, members, node

C = Condition


def conditions(found: tuple[Diagnosis, ...]) -> list[tuple[Condition, str]]:
    return [(one.condition, one.node) for one in found]


def only(facts: ClusterFacts, **last: int) -> Diagnosis:
    found = diagnose(facts, last)
    assert len(found) == 1, found
    return found[0]


def with_node(facts: ClusterFacts, changed: NodeFacts) -> ClusterFacts:
    return replace(facts, nodes=tuple(changed if one.name == changed.name else one for one in facts.nodes))


def alone(name: str = "pve3", count: int = 3, **changed: Any) -> ClusterFacts:
    """The named node runs by itself, with its own list; the others are joined and see it as gone."""
    of = members(count)
    there = [one.name for one in of if one.name != name]
    nodes = [node(one, of, there, departed={int(name[3:]): VERSION}) for one in there]
    return ClusterFacts("pve1", (*nodes, node(name, of, [name], **changed)))


def conf(*of: Any, version: int = VERSION) -> CorosyncConf:
    return CorosyncConf("homelab", version, tuple(of))


@pytest.mark.parametrize(("count", "votes"), [(2, ()), (3, ()), (5, ()), (5, (3, 1, 1, 1, 1))])
def test_all_well_is_healthy(count: int, votes: tuple[int, ...]) -> None:
    found = diagnose(cluster(count, votes))
    assert conditions(found) == [(C.HEALTHY, "")]
    assert is_healthy(found)


def test_votes_are_counted_and_not_nodes() -> None:
    """Of (3,1,1,1,1) the heavy node and one more are enough; four light ones are, too; three are not."""
    two = cluster(5, (3, 1, 1, 1, 1), off=("pve3", "pve4", "pve5"))
    assert two.lead is not None
    found = diagnose(two, {"": VERSION})
    assert conditions(found) == [(C.OFFLINE, f"pve{number}") for number in (3, 4, 5)]
    four = cluster(5, (3, 1, 1, 1, 1), off=("pve1",))
    assert conditions(diagnose(four, {"": VERSION})) == [(C.OFFLINE, "pve1")]
    assert "3 of the votes" in diagnose(four, {"": VERSION})[0].evidence[1]
    three = diagnose(cluster(5, (3, 1, 1, 1, 1), off=("pve1", "pve5")), {"": VERSION})
    assert conditions(three) == [(C.NO_QUORUM, ""), (C.OFFLINE, "pve1"), (C.OFFLINE, "pve5")]
    assert "pve2: 3 of 7 votes, 4 needed" in three[0].evidence
    assert three[0].runbook == "lost-quorum"


def test_key_that_differs_is_told_beside_an_old_list() -> None:
    found = only(alone(key_digest="b" * 64, running_version=6))
    assert (found.condition, found.runbook) == (C.KEY_CHANGED, "stale-corosync-rejoin")
    assert any(KEY[:16] in line for line in found.evidence)
    assert not any(KEY in line for line in found.evidence)


def test_peers_that_moved_need_only_the_current_list() -> None:
    old = tuple(replace(one, addresses=(f"10.9.0.{one.nodeid}",)) if one.nodeid < 3 else one for one in members(3))
    found = only(alone(running=old, local_conf=conf(*old)))
    assert (found.condition, found.node, found.runbook) == (C.PEERS_MOVED, "pve3", "stale-corosync-behind")
    assert "pve1: 10.0.0.1, its list says 10.9.0.1" in found.evidence


@pytest.mark.parametrize(
    ("addresses", "condition", "runbook"),
    [
        (("10.9.0.3",), C.NODE_MOVED, "stale-corosync-rejoin"),
        ((), C.NODE_MOVED, "stale-corosync-rejoin"),
        (("10.9.0.3", "10.0.0.3"), C.BEHIND, "stale-corosync-behind"),
    ],
)
def test_node_that_moved_is_told_from_one_whose_list_is_old(
    addresses: tuple[str, ...], condition: Condition, runbook: str
) -> None:
    old = (*members(2), replace(member(3), addresses=("10.9.0.3",)))
    found = only(alone(running=old, local_conf=conf(*old), addresses=addresses))
    assert (found.condition, found.runbook) == (condition, runbook)


@pytest.mark.parametrize("ends", [True, False])
def test_a_node_whose_own_address_changed_is_found_at_the_new_one_and_not_called_cut_off(*, ends: bool) -> None:
    networks = ("127.0.0.1/8", "fe80::1/64", "192.168.7.3/24", "10.0.0.33/24")
    facts = alone(addresses=tuple(one.partition("/")[0] for one in networks), networks=networks)
    found = only(with_node(facts, dead(facts.nodes[2])) if ends else facts)
    assert (found.condition, found.node, found.runbook) == (C.NODE_MOVED, "pve3", "stale-corosync-rejoin")
    assert found.message == "its own address changed: all lists say 10.0.0.3, and it is at 10.0.0.33"
    assert "switch" not in found.advice
    elsewhere = alone(addresses=("127.0.0.1", "192.168.7.3"), networks=("127.0.0.1/8", "192.168.7.3/24"))
    assert "it is at 192.168.7.3" in only(elsewhere).message


def test_key_and_addresses_are_both_told() -> None:
    old = (replace(member(1), addresses=("10.9.0.1",)), *members(3)[1:])
    found = diagnose(alone(running=old, key_digest="b" * 64))
    assert conditions(found) == [(C.KEY_CHANGED, "pve3"), (C.PEERS_MOVED, "pve3")]


def test_joined_node_with_an_old_list_is_behind() -> None:
    found = only(cluster(changed={"pve3": {"running_version": 6, "local_conf": conf(*members(3), version=6)}}))
    assert (found.condition, found.node) == (C.BEHIND, "pve3")
    assert "while it is joined" in found.message


def test_file_that_corosync_has_not_taken_up_is_told() -> None:
    newer = {"local_conf": conf(*members(3), version=8), "pve_conf": conf(*members(3), version=8)}
    found = diagnose(cluster(changed={f"pve{number}": newer for number in (1, 2, 3)}))
    assert conditions(found) == [(C.BEHIND, f"pve{number}") for number in (1, 2, 3)]
    assert "corosync-cfgtool -R" in found[0].advice


def test_old_file_under_a_current_corosync_is_told() -> None:
    found = only(cluster(changed={"pve2": {"local_conf": conf(*members(3), version=5)}}))
    assert (found.condition, found.node, found.runbook) == (C.BEHIND, "pve2", "stale-corosync-behind")


@pytest.mark.parametrize("ends", [True, False])
def test_a_stale_node_whose_files_would_win_is_kept_out(*, ends: bool) -> None:
    """The copy that saw the most writes becomes everybody's: such a node must not simply be started."""
    facts = alone(database=(300, 1), local_conf=conf(*members(3), version=6), running_version=6)
    facts = with_node(facts, dead(facts.nodes[2])) if ends else facts
    found = only(facts)
    assert (found.condition, found.runbook) == (C.BEHIND, "stale-corosync-rejoin")
    assert "writes to it: 300 on pve3, 200 on pve1" in found.evidence[-1]
    assert "Keep corosync on it stopped" in found.advice


def lacking(name: str = "pve2", **changed: Any) -> ClusterFacts:
    """pve3's list lacks that member, which is joined; pve3 runs by itself."""
    old = tuple(one for one in members(3) if one.name != name)
    links = tuple(Link(one.nodeid, 0, is_connected=True) for one in old if one.name != "pve3")
    lists = {"running": old, "local_conf": conf(*old, version=6), "running_version": 6, "links": links}
    return alone(**{**lists, **changed})


@pytest.mark.parametrize(
    "others",
    [
        tuple(one for one in members(3) if one.name != "pve2"),
        (member(1), replace(member(2), addresses=("10.9.0.2",)), member(3)),
        (member(1), replace(member(2), nodeid=9), member(3)),
    ],
)
def test_a_node_that_hears_some_members_and_not_all_disturbs_them(others: tuple[Any, ...]) -> None:
    found = only(lacking(running=others, local_conf=conf(*others, version=6)))
    assert (found.condition, found.node, found.runbook) == (C.DISTURBING, "pve3", "stale-corosync-behind")
    assert "systemctl stop corosync" in found.advice.partition(" Then ")[0]


def test_a_corosync_that_is_too_busy_with_its_ring_to_answer_runs() -> None:
    late: dict[str, Any] = {
        "quorum": None,
        "links": (),
        "running": (),
        "running_version": None,
        "unread": {"quorum": "too late"},
    }
    found = diagnose(lacking(**late))
    assert conditions(found) == [(C.DISTURBING, "pve3"), (C.UNKNOWN, "pve3")]


@pytest.mark.parametrize(
    ("changed", "condition"),
    [
        ({"key_digest": "b" * 64}, C.KEY_CHANGED),
        ({"running": (replace(member(1), addresses=("10.9.0.1",)), member(3))}, C.PEERS_MOVED),
        (
            {"running": (member(1), replace(member(3), addresses=("10.9.0.3",))), "addresses": ("10.9.0.3",)},
            C.NODE_MOVED,
        ),
    ],
)
def test_a_node_that_nobody_hears_disturbs_nobody(changed: dict[str, Any], condition: Condition) -> None:
    assert [one.condition for one in diagnose(lacking(**changed))] == [condition]


def test_a_list_that_lacks_a_member_is_told_before_its_corosync_is_started() -> None:
    facts = lacking()
    found = only(with_node(facts, dead(facts.nodes[2])))
    assert (found.condition, found.runbook) == (C.BEHIND, "stale-corosync-behind")
    assert "pve2 was added while it was off" in found.message
    assert found.message.endswith("corosync does not run")
    assert found.advice.startswith("Keep corosync on it stopped")


def test_a_list_that_lacks_a_member_disturbs_nobody_while_the_node_is_cut_off() -> None:
    found = only(lacking(links=(Link(1, 0, is_connected=False),)))
    assert (found.condition, found.message.endswith("while it was off")) == (C.BEHIND, True)
    assert found.advice.startswith("Keep corosync on it stopped")


def test_a_node_whose_files_would_win_is_stopped_and_brought_back_without_them() -> None:
    found = only(lacking(database=(300, 1)))
    assert (found.condition, found.runbook) == (C.DISTURBING, "stale-corosync-rejoin")


def test_the_ring_is_told_of_no_more_once_who_disturbed_it_was_stopped() -> None:
    facts = lacking()
    again = replace(facts.nodes[0], signatures=Signatures(reformed=9))
    found = only(with_node(with_node(facts, dead(facts.nodes[2])), again))
    assert (found.condition, found.node) == (C.BEHIND, "pve3")


def test_a_list_with_a_member_that_was_removed_since_disturbs_nobody() -> None:
    found = only(alone(running=members(4), local_conf=conf(*members(4), version=6), running_version=6))
    assert found.condition is C.BEHIND


def test_a_ring_that_does_not_rest_is_told_also_when_nobody_knows_why() -> None:
    line = "pve1 corosync[202]:   [TOTEM ] A new membership (1.19) was formed. Members"
    restless = {"signatures": Signatures(reformed=3, lines=(line,))}
    found = only(cluster(changed={"pve1": restless}))
    assert (found.condition, found.node) == (C.DISTURBING, "")
    assert any(line in one for one in found.evidence)
    assert is_healthy(diagnose(cluster(changed={"pve1": {"signatures": Signatures(reformed=2, lines=(line,))}})))


def test_corosync_that_only_ended_is_dead() -> None:
    facts = alone()
    found = only(with_node(facts, dead(facts.nodes[2])))
    assert (found.condition, found.node) == (C.COROSYNC_DEAD, "pve3")
    assert "corosync: failed" in found.evidence


def test_node_with_the_same_list_that_meets_nobody_is_cut_off() -> None:
    found = only(alone())
    assert (found.condition, found.node) == (C.PARTITION, "pve3")
    assert "link 0 to node 1: disconnected" in found.evidence


def test_two_quorate_halves_are_told_first() -> None:
    of = members(2)
    halves = [node(one.name, of, [one.name], quorum=Quorum(True, 1, 1, 1, {one.nodeid: 1})) for one in of]
    found = diagnose(ClusterFacts("pve1", tuple(halves)))
    assert found[0].condition is C.PARTITION
    assert "quorate at once" in found[0].message


def test_halves_without_quorum_are_told() -> None:
    of = members(2)
    found = diagnose(ClusterFacts("pve1", tuple(node(one.name, of, [one.name]) for one in of)))
    assert (C.PARTITION, "") in conditions(found)
    assert (C.NO_QUORUM, "") in conditions(found)


def test_removed_node_and_one_whose_id_is_taken() -> None:
    of = members(3)
    rest = [node(name, of[:2]) for name in ("pve1", "pve2")]
    lone = node("pve3", of, ["pve3"])
    found = only(ClusterFacts("pve1", (*rest, lone)))
    assert (found.condition, found.node) == (C.REMOVED, "pve3")
    heir = replace(member(4), nodeid=3)
    with_heir = [node(name, (*of[:2], heir)) for name in ("pve1", "pve2", "pve4")]
    found = only(ClusterFacts("pve1", (*with_heir, lone)))
    assert (found.condition, found.node) == (C.ID_REUSED, "pve3")
    assert "given to pve4" in found.message


def test_node_that_was_removed_and_added_again_under_another_id_is_removed() -> None:
    again = replace(member(3), nodeid=5)
    rest = [node(name, (*members(2), again), ["pve1", "pve2"]) for name in ("pve1", "pve2")]
    found = only(ClusterFacts("pve1", (*rest, node("pve3", members(3), ["pve3"]))))
    assert found.condition is C.REMOVED
    assert "added again with id 5" in found.message


def test_offline_member_whose_list_is_old_is_not_to_be_powered_on() -> None:
    facts = cluster(off=("pve3",), changed={"pve1": {"departed": {3: 5}, "heard": {3: "10.0.0.3"}}})
    found = diagnose(facts)
    assert conditions(found) == [(C.OFFLINE, "pve3"), (C.DO_NOT_POWER_ON, "pve3")]
    assert "2 versions behind, its corosync will end itself" in found[1].message
    assert found[1].runbook == "power-on-check"


def test_offline_member_of_which_nothing_is_known_is_not_to_be_powered_on_unseen() -> None:
    found = diagnose(cluster(off=("pve3",)))
    assert conditions(found) == [(C.OFFLINE, "pve3"), (C.DO_NOT_POWER_ON, "pve3")]
    assert "not known" in found[1].message
    assert "--last-version pve3=N" in found[1].advice


@pytest.mark.parametrize(("last", "told"), [({"pve3": 6}, "1 version behind"), ({"": 4}, "3 versions behind")])
def test_version_that_the_user_read_counts(last: dict[str, int], told: str) -> None:
    assert told in diagnose(cluster(off=("pve3",)), last)[1].message


def test_offline_member_with_the_current_list_may_be_powered_on() -> None:
    facts = cluster(off=("pve3",), changed={"pve1": {"departed": {3: VERSION}}})
    assert conditions(diagnose(facts)) == [(C.OFFLINE, "pve3")]


def test_last_version_of_another_machine_with_the_same_id_is_no_proof() -> None:
    facts = cluster(off=("pve3",), changed={"pve1": {"departed": {3: VERSION}, "heard": {3: "10.9.9.9"}}})
    assert (C.DO_NOT_POWER_ON, "pve3") in conditions(diagnose(facts))


def test_silent_member_whose_packets_cannot_be_decrypted_is_on() -> None:
    line = "rx: Unable to decrypt packet from 10.0.0.3:5405 (size 80)!"
    log = Signatures(undecryptable={"10.0.0.3": 9}, lines=(line,))
    found = diagnose(cluster(off=("pve3",), changed={"pve1": {"signatures": log}}))
    assert conditions(found) == [(C.OFFLINE, "pve3"), (C.KEY_CHANGED, "pve3")]


def test_a_member_that_had_another_key_and_is_silent_now_is_off() -> None:
    """Its packets are old, and nobody has mended it: it must not be powered on as it is."""
    line = "2026-11-22T11:00:00+0000 pve1 corosync[2]: rx: Unable to decrypt packet from 10.0.0.3:5405 (size 80)!"
    log = Signatures(undecryptable={"10.0.0.3": 9}, lines=(line,), ages={"10.0.0.3": 3600.0})
    found = diagnose(cluster(off=("pve3",), changed={"pve1": {"signatures": log, "departed": {3: VERSION}}}))
    assert conditions(found) == [(C.OFFLINE, "pve3"), (C.DO_NOT_POWER_ON, "pve3")]
    assert "it had another authkey" in found[1].message
    assert f"pve1: {line}" in found[1].evidence


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (Signatures(unchanged_since=frozenset({3})), "2 versions behind, its corosync will end itself"),
        (Signatures(), "2 versions behind, its corosync will end itself, or disturb the cluster if a member was added"),
        (Signatures(newcomers={3: frozenset({2})}), "pve2 was added since, and it would disturb the cluster"),
    ],
)
def test_before_power_on_it_is_said_what_will_come_of_it(log: Signatures, told: str) -> None:
    facts = cluster(off=("pve3",), changed={"pve1": {"departed": {3: 5}, "signatures": log}})
    (_, found) = diagnose(facts)
    assert found.message.startswith(f"do not power it on: {told}")


def test_a_log_that_was_contradicted_by_the_file_proves_nothing_of_a_lone_node() -> None:
    lone = dead(node("pve3", members(3), ["pve3"], signatures=Signatures(outdated=(VERSION, 6))))
    assert conditions(diagnose(ClusterFacts("pve3", (lone,))))[0] == (C.COROSYNC_DEAD, "pve3")


def test_the_guests_of_a_member_that_is_off_are_named() -> None:
    guests = {"pve3": (Guest(103, "pve3", "lxc", "web"), Guest(104, "pve3", "qemu"))}
    found = diagnose(cluster(off=("pve3",), changed={"pve1": {"guests": guests}}), {"": VERSION})
    (off,) = [one for one in found if one.condition is C.OFFLINE]
    assert "the cluster has 2 guests on it: 103 web, 104" in off.evidence


def test_member_that_is_joined_and_deaf_to_us_is_unknown() -> None:
    facts = cluster()
    facts = replace(facts, nodes=facts.nodes[:2], silent=(Silent("pve3", "10.0.0.3", "Permission denied"),))
    found = only(facts)
    assert (found.condition, found.node) == (C.UNKNOWN, "pve3")
    assert "10.0.0.3: Permission denied" in found.evidence


def test_packets_of_a_stranger_are_told() -> None:
    log = Signatures(rejected={"10.7.7.7": 3}, lines=("rx: Packet rejected from 10.7.7.7:5405",))
    found = only(cluster(changed={"pve1": {"signatures": log}}))
    assert found.condition is C.UNKNOWN
    assert "10.7.7.7" in found.message


@pytest.mark.parametrize("part", ["members", "quorum", "cmap", "local-conf", "guests", "ha"])
def test_what_could_not_be_read_is_never_healthy(part: str) -> None:
    found = only(cluster(changed={"pve2": {"unread": {part: "it did not answer in time"}}}))
    assert (found.condition, found.node) == (C.UNKNOWN, "pve2")
    assert f"{part}: it did not answer in time" in found.evidence


@pytest.mark.parametrize(
    "lack",
    [
        {"key_digest": ""},
        {"units": {}},
        {"running_version": None},
        {"units": {"corosync": "active", "pve-cluster": "failed"}},
    ],
)
def test_lack_of_a_fact_is_never_healthy(lack: dict[str, Any]) -> None:
    assert not is_healthy(diagnose(cluster(changed={"pve2": lack})))


def test_ghosts_with_and_without_guests() -> None:
    guest = Guest(103, "old", "lxc", "web", ("local-lvm:vm-103-disk-0",))
    folders = {**{one.name: () for one in members(3)}, "old": (guest,), "older": ()}
    found = diagnose(cluster(changed={"pve1": {"guests": folders}}))
    assert conditions(found) == [(C.GHOST_WITH_GUESTS, "old"), (C.GHOST, "older")]
    assert "lxc 103 web: local-lvm:vm-103-disk-0" in found[0].evidence


def test_offline_member_is_no_ghost() -> None:
    facts = cluster(off=("pve3",), changed={"pve1": {"departed": {3: VERSION}}})
    assert all(one.condition not in (C.GHOST, C.GHOST_WITH_GUESTS) for one in diagnose(facts))


def test_ghosts_are_told_on_quorate_nodes_only() -> None:
    of = members(3)
    facts = ClusterFacts("pve1", (node("pve1", of, ["pve1"], guests={"old": ()}),))
    assert all(one.condition is not C.GHOST for one in diagnose(facts))


def test_leftovers_are_told_by_name() -> None:
    changed = {
        "references": {"old": ("storage nas", "HA group web")},
        "known_hosts": ("pve1", "older", "10.0.0.9"),
        "keys": ("pve1", "old", "laptop"),
    }
    found = diagnose(cluster(changed={"pve1": changed}))
    assert conditions(found) == [(C.LEFTOVERS, "old"), (C.LEFTOVERS, "older")]
    assert found[0].evidence == ("storage nas", "HA group web", "/etc/pve/priv/authorized_keys")


def test_clock_that_is_off_is_told_by_the_others() -> None:
    assert only(cluster(changed={"pve2": {"clock_offset_s": 61.5}})).node == "pve2"
    assert is_healthy(diagnose(cluster(changed={"pve2": {"clock_offset_s": 4.9}})))
    shifted = {f"pve{number}": {"clock_offset_s": 3600.0} for number in (1, 2, 3)}
    assert is_healthy(diagnose(cluster(changed=shifted)))  # then it is ours that is wrong


def test_of_two_clocks_nobody_knows_which_is_wrong() -> None:
    found = only(cluster(2, changed={"pve2": {"clock_offset_s": -30.0}}))
    assert (found.condition, found.node) == (C.CLOCK_SKEW, "")
    assert "the clock of pve1 is 30.0 s ahead of that of pve2" in found.message


def test_unclustered_node_proves_nothing() -> None:
    lone = NodeFacts(
        "pve1", "10.0.0.1", pmxcfs=Pmxcfs("pve1"), guests={"pve1": (), "old": ()}, units={"corosync": "inactive"}
    )
    found = only(ClusterFacts("pve1", (lone,)))
    assert found.condition is C.UNCLUSTERED
    assert "old" in found.evidence[0]


def test_member_that_is_no_proxmox_any_more_is_never_healthy() -> None:
    facts = cluster()
    found = diagnose(with_node(facts, NodeFacts("pve3", "10.0.0.3", is_proxmox=False)))
    assert conditions(found) == [(C.UNCLUSTERED, "pve3")]


@pytest.mark.parametrize(
    ("log", "condition"),
    [
        (Signatures(outdated=(8, 7), lines=("Received config version (8) …",)), C.BEHIND),
        (Signatures(undecryptable={"10.0.0.1": 1}, lines=("Unable to decrypt …",)), C.KEY_CHANGED),
        (Signatures(rejected={"10.9.0.1": 1}, lines=("Packet rejected from 10.9.0.1:5405",)), C.PEERS_MOVED),
    ],
)
def test_node_that_is_asked_alone_is_judged_by_its_own_log(log: Signatures, condition: Condition) -> None:
    facts = cluster(off=("pve1", "pve2"))
    facts = ClusterFacts("pve3", (replace(facts.nodes[0], signatures=log),), facts.silent)
    assert (condition, "pve3") in conditions(diagnose(facts))


def test_every_diagnosis_says_what_proves_it_and_what_to_do() -> None:
    facts = [
        alone(),
        alone(key_digest="b"),
        cluster(off=("pve3",)),
        cluster(off=("pve2", "pve3")),
        cluster(changed={"pve2": {"clock_offset_s": 99.0}, "pve1": {"guests": {"old": ()}, "known_hosts": ("old",)}}),
    ]
    for one in (one for some in facts for one in diagnose(some)):
        assert one.evidence, one
        assert one.advice, one
