"""What became different in a cluster between two looks: membership, quorum, ring, version, packets turned away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from provisioner.repair.cluster_conditions import votes_text
from provisioner.repair.corosync_log import is_about
from provisioner.repair.facts import ClusterFacts, NodeFacts
from provisioner.repair.ring import HANGS, restless_nodes
from provisioner.repair.view import View, is_clustered, is_running, version_of

Kind = Literal["membership", "quorum", "ring", "version", "rejected", "answer"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is compared. ``version``: the newest list's. ``members``: name → is joined. ``quorate``: of those that
    answered, name → has quorum. ``versions``: name → the version of its list. ``turned_away``: "pve1 10.0.0.3" → the
    last line about it, ``active``: those of them to which a line was added since the look before. ``restless``: the
    joined nodes that form their membership anew again and again.
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


@dataclass(frozen=True, slots=True)
class Change:
    """One difference; ``node`` is empty where it is the cluster's. ``is_worse``: somebody should look at it."""

    kind: Kind
    node: str
    message: str
    is_worse: bool


def snapshot(facts: ClusterFacts, cluster: str, before: Snapshot | None = None) -> Snapshot:
    """What is kept of a look; ``before`` tells old lines of a log from new ones."""
    view = View(facts)
    clustered = [one for one in facts.nodes if is_clustered(one)]
    lines = {key: line for one in clustered for key, line in _turned_away(one)}
    known = before.turned_away if before else {}
    quorum = view.quorum if view.has_quorum else None
    return Snapshot(
        cluster=cluster,
        is_quorate=view.has_quorum,
        votes=votes_text(quorum) if quorum else "",
        version=view.version,
        members={one.name: view.has_quorum and view.is_present(one.nodeid) for one in view.members},
        quorate={one.name: bool(one.quorum and one.quorum.is_quorate) for one in clustered},
        versions={one.name: version for one in clustered if (version := version_of(one)) is not None},
        turned_away=lines,
        active=tuple(sorted(key for key, line in lines.items() if known.get(key) != line)),
        restless=tuple(one.name for one in restless_nodes(view)),
    )


def changes(before: Snapshot, after: Snapshot) -> tuple[Change, ...]:
    """The differences, those of the cluster first; none when all is as it was."""
    return (
        *_of_quorum(before, after),
        *_of_ring(before, after),
        *_of_membership(before, after),
        *_of_versions(before, after),
        *_of_packets(before, after),
        *_of_answers(before, after),
    )


def _of_quorum(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    if before.is_quorate != after.is_quorate:
        what = f"quorum is back: {after.votes}" if after.is_quorate else "no node that answers has quorum"
        yield Change("quorum", "", what, not after.is_quorate)
        return
    for name in sorted(before.quorate.keys() & after.quorate.keys()):
        if before.quorate[name] != after.quorate[name]:
            what = "has quorum" if after.quorate[name] else "has lost quorum"
            yield Change("quorum", name, what, not after.quorate[name])


def _of_ring(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    if after.restless and not before.restless:
        what = (
            f"{', '.join(after.restless)}: the membership is formed anew again and again: {HANGS}; see: cluster check"
        )
        yield Change("ring", "", what, is_worse=True)
    elif before.restless and not after.restless:
        yield Change("ring", "", "the membership is formed anew no more", is_worse=False)


def _of_membership(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    for name in sorted(after.members.keys() - before.members.keys()):
        yield Change("membership", name, "was added to the list of members", is_worse=False)
    for name in sorted(before.members.keys() - after.members.keys()):
        yield Change("membership", name, "was removed from the list of members", is_worse=False)
    if before.is_quorate != after.is_quorate:
        return  # said in one line
    counted = f": {after.votes}" if after.votes else ""
    for name in sorted(before.members.keys() & after.members.keys()):
        if before.members[name] != after.members[name]:
            word = "joined" if after.members[name] else "left"
            yield Change("membership", name, f"{word}{counted}", not after.members[name])


def _of_versions(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    if before.version != after.version:
        what = f"config_version {before.version} became {after.version}"
        yield Change("version", "", what, after.version < before.version)
    for name, version in sorted(after.versions.items()):
        was_behind = before.versions.get(name, before.version) < before.version
        if version < after.version and not was_behind:
            yield Change("version", name, f"is behind: config_version {version} of {after.version}", is_worse=True)
        elif version == after.version and was_behind:
            yield Change("version", name, f"is no longer behind: config_version {version}", is_worse=False)


def _of_packets(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    for key in after.active:
        if key not in before.active:
            name, _, address = key.partition(" ")
            yield Change(
                "rejected", name, f"turns away packets from {address}: {after.turned_away[key]}", is_worse=True
            )
    for key in before.active:
        name, _, address = key.partition(" ")
        if key not in after.active and name in after.quorate:
            yield Change("rejected", name, f"turns away no more packets from {address}", is_worse=False)


def _of_answers(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    for name in sorted(before.quorate.keys() - after.quorate.keys()):
        yield Change("answer", name, "does not answer", is_worse=True)
    for name in sorted(after.quorate.keys() - before.quorate.keys()):
        yield Change("answer", name, "answers", is_worse=False)


def _turned_away(node: NodeFacts) -> Iterator[tuple[str, str]]:
    if not is_running(node):
        return
    for address in {**node.signatures.rejected, **node.signatures.undecryptable}:
        found = [line for line in node.signatures.lines if is_about(line, [address])]
        yield f"{node.name} {address}", found[-1] if found else ""
