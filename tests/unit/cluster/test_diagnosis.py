"""What is wrong with a cluster, from facts: each condition, and that the unknown is never healthy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.cluster.diagnosis import diagnose, is_healthy
from provisioner.cluster.facts import (
    ClusterFacts,
    Condition,
    CorosyncConf,
    Diagnosis,
    Guest,
    Link,
    NodeFacts,
    Pmxcfs,
    Quorum,
    Signatures,
    Silent,
)
from provisioner.cluster.text import diagnosis_text
from tests.cluster_facts import KEY, VERSION, cluster, dead, member, members, node

C = Condition


def conditions(found: tuple[Diagnosis, ...]) -> list[tuple[Condition, str]]:
    return [(one.condition, one.node) for one in found]


def with_node(facts: ClusterFacts, changed: NodeFacts) -> ClusterFacts:
    return replace(facts, nodes=tuple(changed if one.name == changed.name else one for one in facts.nodes))


def with_dead(facts: ClusterFacts) -> ClusterFacts:
    """The same with the corosync of pve3 ended."""
    return with_node(facts, dead(facts.nodes[2]))


def alone(name: str = "pve3", count: int = 3, **changed: Any) -> ClusterFacts:
    """The named node runs by itself, with its own list; the others are joined and see it as gone."""
    of = members(count)
    there = [one.name for one in of if one.name != name]
    nodes = [node(one, of, there, departed={int(name[3:]): VERSION}) for one in there]
    return ClusterFacts("pve1", (*nodes, node(name, of, [name], **changed)))


def conf(*of: Any, version: int = VERSION) -> CorosyncConf:
    return CorosyncConf("homelab", version, tuple(of))


def lacking(name: str = "pve2", **changed: Any) -> ClusterFacts:
    """pve3's list lacks that member, which is joined; pve3 runs by itself."""
    old = tuple(one for one in members(3) if one.name != name)
    links = tuple(Link(one.nodeid, 0, is_connected=True) for one in old if one.name != "pve3")
    lists = {"running": old, "local_conf": conf(*old, version=6), "running_version": 6, "links": links}
    return alone(**{**lists, **changed})


def others(*of: Any) -> ClusterFacts:
    """pve3 runs by itself with these members in its list, some of which it hears."""
    return lacking(running=of, local_conf=conf(*of, version=6))


def off(*names: str, count: int = 3, votes: tuple[int, ...] = (), **pve1: Any) -> ClusterFacts:
    """Members that do not answer; what pve1 says in other words."""
    return cluster(count, votes, off=names or ("pve3",), changed={"pve1": pve1})


def halves(**quorum: Any) -> ClusterFacts:
    """Two nodes that see only themselves."""
    of = members(2)
    ours = [{"quorum": Quorum(True, 1, 1, 1, {one.nodeid: 1})} if quorum else {} for one in of]
    return ClusterFacts("pve1", tuple(node(one.name, of, [one.name], **own) for one, own in zip(of, ours, strict=True)))


def apart(present: tuple[Any, ...], away: str = "pve3") -> ClusterFacts:
    """The nodes of a list that pve3, which runs by itself, is not in as it was; one of them is not there."""
    names = [one.name for one in present if one.name != away]
    return ClusterFacts("pve1", (*(node(one, present, names) for one in names), node("pve3", members(3), ["pve3"])))


def asked_alone(log: Signatures) -> ClusterFacts:
    """pve3 alone answers."""
    facts = cluster(off=("pve1", "pve2"))
    return ClusterFacts("pve3", (replace(facts.nodes[0], signatures=log),), facts.silent)


OLD_PEERS = tuple(replace(one, addresses=(f"10.9.0.{one.nodeid}",)) if one.nodeid < 3 else one for one in members(3))
OLD_SELF = (*members(2), replace(member(3), addresses=("10.9.0.3",)))
FIVE = (3, 1, 1, 1, 1)
NETWORKS = ("127.0.0.1/8", "fe80::1/64", "192.168.7.3/24", "10.0.0.33/24")
MOVED = alone(addresses=tuple(one.partition("/")[0] for one in NETWORKS), networks=NETWORKS)
AHEAD = alone(database=(300, 1), local_conf=conf(*members(3), version=6), running_version=6)
NEWER = {"local_conf": conf(*members(3), version=8), "pve_conf": conf(*members(3), version=8)}
DECRYPT = "rx: Unable to decrypt packet from 10.0.0.3:5405 (size 80)!"
FORMED = "pve1 corosync[202]:   [TOTEM ] A new membership (1.19) was formed. Members"
GUEST = Guest(103, "old", "lxc", "web", ("local-lvm:vm-103-disk-0",))
LEFT = {
    "references": {"old": ("storage nas", "HA group web")},
    "known_hosts": ("pve1", "older", "10.0.0.9"),
    "keys": ("pve1", "old", "laptop"),
}
LONE = NodeFacts(
    "pve1", "10.0.0.1", pmxcfs=Pmxcfs("pve1"), guests={"pve1": (), "old": ()}, units={"corosync": "inactive"}
)
DEAF: dict[str, Any] = {
    "quorum": None, "links": (), "running": (), "running_version": None, "unread": {"quorum": "too late"},
}  # fmt: skip
SILENT = Silent("pve3", "10.0.0.3", "Permission denied")

Case = tuple[ClusterFacts, dict[str, int], list[tuple[Condition, str]]]
OFF_BOTH = [(condition, name) for name in ("pve1", "pve2") for condition in (C.OFFLINE, C.DO_NOT_POWER_ON)]
OFF_PVE3, UNSAFE_PVE3 = (C.OFFLINE, "pve3"), (C.DO_NOT_POWER_ON, "pve3")
CASES: dict[str, Case] = {
    "two-nodes-well": (cluster(2), {}, [(C.HEALTHY, "")]),
    "three-nodes-well": (cluster(3), {}, [(C.HEALTHY, "")]),
    "five-nodes-well": (cluster(5), {}, [(C.HEALTHY, "")]),
    "unequal-votes-well": (cluster(5, FIVE), {}, [(C.HEALTHY, "")]),
    # Votes are counted and not nodes: of (3,1,1,1,1) the heavy node and one more are enough; four light ones are, too.
    "heavy-node-and-one-more": (
        off("pve3", "pve4", "pve5", count=5, votes=FIVE), {"": VERSION}, [(C.OFFLINE, f"pve{n}") for n in (3, 4, 5)],
    ),
    "four-light-nodes": (off("pve1", count=5, votes=FIVE), {"": VERSION}, [(C.OFFLINE, "pve1")]),
    "three-light-nodes": (
        off("pve1", "pve5", count=5, votes=FIVE), {"": VERSION},
        [(C.NO_QUORUM, ""), (C.OFFLINE, "pve1"), (C.OFFLINE, "pve5")],
    ),
    "key-and-old-list": (alone(key_digest="b" * 64, running_version=6), {}, [(C.KEY_CHANGED, "pve3")]),
    "peers-moved": (alone(running=OLD_PEERS, local_conf=conf(*OLD_PEERS)), {}, [(C.PEERS_MOVED, "pve3")]),
    "node-moved": (
        alone(running=OLD_SELF, local_conf=conf(*OLD_SELF), addresses=("10.9.0.3",)), {}, [(C.NODE_MOVED, "pve3")],
    ),
    "node-moved-addresses-unknown": (
        alone(running=OLD_SELF, local_conf=conf(*OLD_SELF), addresses=()), {}, [(C.NODE_MOVED, "pve3")],
    ),
    "node-at-both-addresses": (
        alone(running=OLD_SELF, local_conf=conf(*OLD_SELF), addresses=("10.9.0.3", "10.0.0.3")), {},
        [(C.BEHIND, "pve3")],
    ),
    "own-address-changed": (MOVED, {}, [(C.NODE_MOVED, "pve3")]),
    "own-address-changed-dead": (with_dead(MOVED), {}, [(C.NODE_MOVED, "pve3")]),
    "own-address-of-another-network": (
        alone(addresses=("127.0.0.1", "192.168.7.3"), networks=("127.0.0.1/8", "192.168.7.3/24")), {},
        [(C.NODE_MOVED, "pve3")],
    ),
    "key-and-addresses": (
        alone(running=(OLD_PEERS[0], *members(3)[1:]), key_digest="b" * 64), {},
        [(C.KEY_CHANGED, "pve3"), (C.PEERS_MOVED, "pve3")],
    ),
    "joined-with-old-list": (
        cluster(changed={"pve3": {"running_version": 6, "local_conf": conf(*members(3), version=6)}}), {},
        [(C.BEHIND, "pve3")],
    ),
    "file-not-taken-up": (
        cluster(changed=dict.fromkeys(("pve1", "pve2", "pve3"), NEWER)), {},
        [(C.BEHIND, f"pve{number}") for number in (1, 2, 3)],
    ),
    "old-file-under-current-corosync": (
        cluster(changed={"pve2": {"local_conf": conf(*members(3), version=5)}}), {}, [(C.BEHIND, "pve2")],
    ),
    # The copy that saw the most writes becomes everybody's: such a node must not simply be started.
    "stale-files-would-win": (AHEAD, {}, [(C.BEHIND, "pve3")]),
    "stale-files-would-win-dead": (with_dead(AHEAD), {}, [(C.BEHIND, "pve3")]),
    "hears-some-lacks-one": (others(member(1), member(3)), {}, [(C.DISTURBING, "pve3")]),
    "hears-some-one-moved": (
        others(member(1), replace(member(2), addresses=("10.9.0.2",)), member(3)), {}, [(C.DISTURBING, "pve3")],
    ),
    "hears-some-one-has-another-id": (
        others(member(1), replace(member(2), nodeid=9), member(3)), {}, [(C.DISTURBING, "pve3")],
    ),
    "too-busy-to-answer": (lacking(**DEAF), {}, [(C.DISTURBING, "pve3"), (C.UNKNOWN, "pve3")]),
    "lacking-unheard-key": (lacking(key_digest="b" * 64), {}, [(C.KEY_CHANGED, "pve3")]),
    "lacking-unheard-peers": (lacking(running=(OLD_PEERS[0], member(3))), {}, [(C.PEERS_MOVED, "pve3")]),
    "lacking-unheard-moved": (
        lacking(running=(member(1), OLD_SELF[2]), addresses=("10.9.0.3",)), {}, [(C.NODE_MOVED, "pve3")],
    ),
    "lacking-before-start": (with_dead(lacking()), {}, [(C.BEHIND, "pve3")]),
    "lacking-cut-off": (lacking(links=(Link(1, 0, is_connected=False),)), {}, [(C.BEHIND, "pve3")]),
    "lacking-files-would-win": (lacking(database=(300, 1)), {}, [(C.DISTURBING, "pve3")]),
    "disturber-was-stopped": (
        with_node(with_dead(lacking()), replace(lacking().nodes[0], signatures=Signatures(reformed=9))), {},
        [(C.BEHIND, "pve3")],
    ),
    "list-with-a-removed-member": (
        alone(running=members(4), local_conf=conf(*members(4), version=6), running_version=6), {},
        [(C.BEHIND, "pve3")],
    ),
    "restless-ring": (
        cluster(changed={"pve1": {"signatures": Signatures(reformed=3, lines=(FORMED,))}}), {}, [(C.DISTURBING, "")],
    ),
    "ring-formed-twice": (
        cluster(changed={"pve1": {"signatures": Signatures(reformed=2, lines=(FORMED,))}}), {}, [(C.HEALTHY, "")],
    ),
    "only-ended": (with_dead(alone()), {}, [(C.COROSYNC_DEAD, "pve3")]),
    "cut-off": (alone(), {}, [(C.PARTITION, "pve3")]),
    "quorate-halves": (
        halves(quorate=True), {}, [(C.PARTITION, ""), (C.DEGRADED, ""), (C.PARTITION, "pve2")],
    ),
    "halves-without-quorum": (halves(), {}, [(C.PARTITION, ""), (C.NO_QUORUM, ""), (C.PARTITION, "pve2")]),
    "removed": (apart(members(2)), {}, [(C.REMOVED, "pve3")]),
    "id-reused": (apart((*members(2), replace(member(4), nodeid=3))), {}, [(C.ID_REUSED, "pve3")]),
    "another-name-in-the-cluster's-list": (
        apart((*members(2), replace(member(3), name="nuc")), "nuc"), {}, [(C.RENAMED, "pve3")],
    ),
    "a-member-with-another-name": (
        others(member(1), replace(member(2), name="old2"), member(3)), {}, [(C.BEHIND, "pve3")],
    ),
    "added-again": (apart((*members(2), replace(member(3), nodeid=5))), {}, [(C.REMOVED, "pve3")]),
    "off-with-old-list": (off(departed={3: 5}, heard={3: "10.0.0.3"}), {}, [OFF_PVE3, UNSAFE_PVE3]),
    "off-unknown": (off(), {}, [OFF_PVE3, UNSAFE_PVE3]),
    "off-version-given": (off(), {"pve3": 6}, [OFF_PVE3, UNSAFE_PVE3]),
    "off-version-of-all-given": (off(), {"": 4}, [OFF_PVE3, UNSAFE_PVE3]),
    "off-with-current-list": (off(departed={3: VERSION}), {}, [OFF_PVE3]),
    "off-id-of-another-machine": (off(departed={3: VERSION}, heard={3: "10.9.9.9"}), {}, [OFF_PVE3, UNSAFE_PVE3]),
    "silent-and-undecryptable": (
        off(signatures=Signatures(undecryptable={"10.0.0.3": 9}, lines=(DECRYPT,))), {},
        [OFF_PVE3, (C.KEY_CHANGED, "pve3")],
    ),
    # Its packets are old, and nobody has mended it: it must not be powered on as it is.
    "off-had-another-key": (
        off(
            signatures=Signatures(undecryptable={"10.0.0.3": 9}, lines=(DECRYPT,), ages={"10.0.0.3": 3600.0}),
            departed={3: VERSION},
        ), {},
        [OFF_PVE3, UNSAFE_PVE3],
    ),
    "off-nothing-changed-since": (
        off(departed={3: 5}, signatures=Signatures(unchanged_since=frozenset({3}))), {}, [OFF_PVE3, UNSAFE_PVE3],
    ),
    "off-one-was-added-since": (
        off(departed={3: 5}, signatures=Signatures(newcomers={3: frozenset({2})})), {}, [OFF_PVE3, UNSAFE_PVE3],
    ),
    "off-with-guests": (
        off(guests={"pve3": (Guest(103, "pve3", "lxc", "web"), Guest(104, "pve3", "qemu"))}), {"": VERSION},
        [OFF_PVE3],
    ),
    "log-contradicted-by-file": (
        ClusterFacts("pve3", (dead(node("pve3", members(3), ["pve3"], signatures=Signatures(outdated=(VERSION, 6)))),)),
        {}, [(C.COROSYNC_DEAD, "pve3"), *OFF_BOTH],
    ),
    "joined-and-deaf-to-us": (
        replace(cluster(), nodes=cluster().nodes[:2], silent=(SILENT,)), {}, [(C.UNKNOWN, "pve3")],
    ),
    "packets-of-a-stranger": (
        cluster(
            changed={"pve1": {
                "signatures": Signatures(rejected={"10.7.7.7": 3}, lines=("rx: Packet rejected from 10.7.7.7:5405",))
            }}
        ), {},
        [(C.UNKNOWN, "")],
    ),
    "ghosts": (
        cluster(changed={"pve1": {"guests": {**{one.name: () for one in members(3)}, "old": (GUEST,), "older": ()}}}),
        {}, [(C.GHOST_WITH_GUESTS, "old"), (C.GHOST, "older")],
    ),
    "ghosts-without-quorum": (
        ClusterFacts("pve1", (node("pve1", members(3), ["pve1"], guests={"old": ()}),)), {},
        [(C.NO_QUORUM, ""), (C.OFFLINE, "pve2"), (C.DO_NOT_POWER_ON, "pve2"), OFF_PVE3, UNSAFE_PVE3],
    ),
    "leftovers": (cluster(changed={"pve1": LEFT}), {}, [(C.LEFTOVERS, "old"), (C.LEFTOVERS, "older")]),
    "clock-off": (cluster(changed={"pve2": {"clock_offset_s": 61.5}}), {}, [(C.CLOCK_SKEW, "pve2")]),
    "clock-nearly-right": (cluster(changed={"pve2": {"clock_offset_s": 4.9}}), {}, [(C.HEALTHY, "")]),
    "our-clock-off": (
        cluster(changed={f"pve{number}": {"clock_offset_s": 3600.0} for number in (1, 2, 3)}), {}, [(C.HEALTHY, "")],
    ),
    "one-clock-of-two": (cluster(2, changed={"pve2": {"clock_offset_s": -30.0}}), {}, [(C.CLOCK_SKEW, "")]),
    "unclustered": (ClusterFacts("pve1", (LONE,)), {}, [(C.UNCLUSTERED, "pve1")]),
    "no-proxmox-any-more": (
        with_node(cluster(), NodeFacts("pve3", "10.0.0.3", is_proxmox=False)), {}, [(C.UNCLUSTERED, "pve3")],
    ),
    "own-log-outdated": (
        asked_alone(Signatures(outdated=(8, 7), lines=("Received config version (8) …",))), {},
        [(C.NO_QUORUM, ""), (C.BEHIND, "pve3"), *OFF_BOTH],
    ),
    "own-log-undecryptable": (
        asked_alone(Signatures(undecryptable={"10.0.0.1": 1}, lines=("Unable to decrypt …",))), {},
        [(C.NO_QUORUM, ""), (C.KEY_CHANGED, "pve3"), *OFF_BOTH],
    ),
    "own-log-rejected": (
        asked_alone(Signatures(rejected={"10.9.0.1": 1}, lines=("Packet rejected from 10.9.0.1:5405",))), {},
        [(C.NO_QUORUM, ""), (C.PEERS_MOVED, "pve3"), *OFF_BOTH],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "last", "expected"), CASES.values(), ids=CASES)
def test_each_state_is_told_with_what_proves_it_and_what_to_do(
    facts: ClusterFacts, last: dict[str, int], expected: list[tuple[Condition, str]], snapshot: SnapshotAssertion
) -> None:
    found = diagnose(facts, last)
    assert conditions(found) == expected
    assert is_healthy(found) == (expected == [(C.HEALTHY, "")])
    text = "\n".join(map(diagnosis_text, found))
    assert KEY not in text, "a digest of the key is shown by its beginning alone"
    assert text == snapshot
    assert all(one.evidence and one.advice for one in found if one.condition is not C.HEALTHY)


@pytest.mark.parametrize("part", ["members", "quorum", "cmap", "local-conf", "guests", "ha"])
def test_what_could_not_be_read_is_never_healthy(part: str) -> None:
    (found,) = diagnose(cluster(changed={"pve2": {"unread": {part: "it did not answer in time"}}}))
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
