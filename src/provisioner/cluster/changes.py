"""The changes of a cluster between two times: membership, quorum, ring, version, packets turned away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from provisioner.cluster.diagnosis import votes_text
from provisioner.cluster.facts import ClusterFacts, NodeFacts
from provisioner.cluster.node_conditions import HANGS, restless_nodes
from provisioner.cluster.read_corosync import is_about
from provisioner.cluster.redundancy import losses_text, weaknesses
from provisioner.cluster.view import View, is_clustered, is_running, version_of

Kind = Literal["membership", "quorum", "redundancy", "ring", "version", "rejected", "answer"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The values compared. ``version``: the newest list's. ``members``: name → is joined. ``quorate``: of those that
    answered, name → has quorum. ``versions``: name → the version of its list. ``turned_away``: "pve1 10.0.0.3" → the
    last line about it, ``active``: those of them to which a line was added since the look before. ``restless``: the
    joined nodes that form their membership anew again and again. ``weaknesses``: what the cluster lacks of its
    redundancy, ``losses``: which nodes it can lose.
    """

    cluster: str
    is_quorate: bool
    votes: str
    version: int
    members: Mapping[str, bool] = field(default_factory=dict)
    quorate: Mapping[str, bool] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)
    turned_away: Mapping[str, str] = field(default_factory=dict)
    active: tuple[str, ...] = ()
    restless: tuple[str, ...] = ()
    weaknesses: tuple[str, ...] = ()
    losses: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference; ``node`` is empty where it is the cluster's. ``is_worse``: somebody should look at it."""

    kind: Kind
    node: str
    message: str
    is_worse: bool


def snapshot(facts: ClusterFacts, cluster: str, before: Snapshot | None = None) -> Snapshot:
    """Return what is compared next time; ``before`` tells old lines of a log from new ones."""
    view = View(facts)
    nodes = [node for node in facts.nodes if is_clustered(node)]
    turned_away = _turned_away(nodes)
    old_lines = before.turned_away if before else {}
    active = [sender for sender, line in turned_away.items() if old_lines.get(sender) != line]
    versions = dict[str, int]()
    for node in nodes:
        version = version_of(node)
        if version is not None:
            versions[node.name] = version
    has_quorum = view.has_quorum
    return Snapshot(
        cluster=cluster,
        is_quorate=has_quorum,
        votes=votes_text(view.quorum) if has_quorum and view.quorum is not None else "",
        version=view.version,
        members={member.name: has_quorum and view.is_present(member.nodeid) for member in view.members},
        quorate={node.name: node.is_quorate for node in nodes},
        versions=versions,
        turned_away=turned_away,
        active=tuple(sorted(active)),
        restless=tuple(node.name for node in restless_nodes(view)),
        weaknesses=tuple(weakness.what for weakness in weaknesses(view)),
        losses=losses_text(view),
    )


def changes(before: Snapshot, after: Snapshot) -> tuple[Change, ...]:
    """The differences, those of the cluster first; none when all is as it was."""
    return (
        *_of_quorum(before, after),
        *_of_redundancy(before, after),
        *_of_ring(before, after),
        *_of_membership(before, after),
        *_of_versions(before, after),
        *_of_packets(before, after),
        *_of_answers(before, after),
    )


def _of_quorum(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    """The cluster gained or lost quorum; where it did neither, the nodes that did."""
    if before.is_quorate == after.is_quorate:
        yield from _of_nodes_quorum(before, after)
    elif after.is_quorate:
        yield Change("quorum", "", f"quorum is back: {after.votes}", is_worse=False)
    else:
        yield Change("quorum", "", "no node that answers has quorum", is_worse=True)


def _of_nodes_quorum(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    for name, has_quorum in _differing(before.quorate, after.quorate):
        if has_quorum:
            yield Change("quorum", name, "has quorum", is_worse=False)
        else:
            yield Change("quorum", name, "has lost quorum", is_worse=True)


def _of_redundancy(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    """Began to lack something that was there, or lacks it no more; a cluster without quorum says neither."""
    if not (before.is_quorate and after.is_quorate):
        return
    for what in sorted({*after.weaknesses}.difference(before.weaknesses)):
        yield Change("redundancy", "", f"{what}; {after.losses}", is_worse=True)
    for what in sorted({*before.weaknesses}.difference(after.weaknesses)):
        yield Change("redundancy", "", f"no more: {what}; {after.losses}", is_worse=False)


def _of_ring(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    """Nodes began to form their membership anew again and again, or stopped doing so."""
    was_restless, is_restless = bool(before.restless), bool(after.restless)
    if was_restless == is_restless:
        return
    if is_restless:
        names = ", ".join(after.restless)
        what = f"{names}: the membership is formed anew again and again: {HANGS}; see: cluster check"
        yield Change("ring", "", what, is_worse=True)
    else:
        yield Change("ring", "", "the membership is formed anew no more", is_worse=False)


def _of_membership(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    """Members that were added to the list or removed from it, and those that joined corosync or left it."""
    for name in sorted(after.members.keys() - before.members.keys()):
        yield Change("membership", name, "was added to the list of members", is_worse=False)
    for name in sorted(before.members.keys() - after.members.keys()):
        yield Change("membership", name, "was removed from the list of members", is_worse=False)
    if before.is_quorate != after.is_quorate:
        return  # said in one line
    counted = f": {after.votes}" if after.votes else ""
    for name, is_joined in _differing(before.members, after.members):
        if is_joined:
            yield Change("membership", name, f"joined{counted}", is_worse=False)
        else:
            yield Change("membership", name, f"left{counted}", is_worse=True)


def _of_versions(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    """The newest list is another one than before; then the nodes that fell behind it or caught up."""
    if before.version != after.version:
        what = f"config_version {before.version} became {after.version}"
        yield Change("version", "", what, is_worse=after.version < before.version)
    for name, version in sorted(after.versions.items()):
        version_before = before.versions.get(name, before.version)
        was_behind = version_before < before.version
        is_behind = version < after.version
        if is_behind and not was_behind:
            what = f"is behind: config_version {version} of {after.version}"
            yield Change("version", name, what, is_worse=True)
        if was_behind and version == after.version:
            what = f"is no longer behind: config_version {version}"
            yield Change("version", name, what, is_worse=False)


def _of_packets(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    """Senders whose packets a node turns away now or no more; a node that does not answer says neither."""
    for sender in after.active:
        if sender not in before.active:
            name, _, address = sender.partition(" ")
            what = f"turns away packets from {address}: {after.turned_away[sender]}"
            yield Change("rejected", name, what, is_worse=True)
    for sender in before.active:
        name, _, address = sender.partition(" ")
        if sender not in after.active and name in after.quorate:
            yield Change("rejected", name, f"turns away no more packets from {address}", is_worse=False)


def _of_answers(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    """Nodes that stopped answering us, or answer again."""
    for name in sorted(before.quorate.keys() - after.quorate.keys()):
        yield Change("answer", name, "does not answer", is_worse=True)
    for name in sorted(after.quorate.keys() - before.quorate.keys()):
        yield Change("answer", name, "answers", is_worse=False)


def _differing(before: Mapping[str, bool], after: Mapping[str, bool]) -> Iterator[tuple[str, bool]]:
    """The names that are in both with different values, in order, each with the value ``after``."""
    for name in sorted(before.keys() & after.keys()):
        if before[name] != after[name]:
            yield name, after[name]


def _turned_away(nodes: Iterable[NodeFacts]) -> dict[str, str]:
    """The senders whose packets the nodes turn away ("pve1 10.0.0.3") → the last line about them."""
    lines_by_sender = dict[str, str]()
    for node in filter(is_running, nodes):
        log = node.signatures
        for address in log.turned_away:
            lines = [line for line in log.lines if is_about(line, [address])]
            lines_by_sender[f"{node.name} {address}"] = lines[-1] if lines else ""
    return lines_by_sender
