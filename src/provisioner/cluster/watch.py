"""``cluster watch``: observe a cluster again and again, and say what changed since the time before, stored here."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from provisioner.cluster.diagnosis import votes_text
from provisioner.cluster.facts import ClusterFacts, NodeFacts
from provisioner.cluster.gather import Emit, Reach, gather
from provisioner.cluster.node_conditions import HANGS, restless_nodes
from provisioner.cluster.read_corosync import is_about
from provisioner.cluster.redundancy import losses_text, weaknesses
from provisioner.cluster.view import View, is_clustered, is_running, version_of
from provisioner.report.style import PLAIN, Style, safe_line
from provisioner.values import paths
from provisioner.values.errors import ProvisionError
from provisioner.values.plain_data import json_value
from provisioner.values.regular_files import text_of

FILE = "watch.json"
FORMAT = 1
"""Of the file; another one is not read, and written anew."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The cluster now, when that was (ISO 8601, UTC), what changed, and whether there was nothing to compare with."""

    at: str
    now: Snapshot
    changes: tuple[Change, ...]
    is_first: bool


@dataclass(frozen=True, slots=True)
class _Stored:
    """The time before; ``asked`` is how the cluster was named, ``addresses`` where its nodes answered."""

    asked: str
    addresses: tuple[str, ...]
    snapshot: Snapshot


def observe_again(asked: Reach, emit: Emit) -> Observation:
    """Observe the cluster, compare with the last time, and store it for the next.

    When ``asked`` tells nothing, the nodes that answered last time are tried; ``ProvisionError``: none does either.
    """
    before = _last(asked)
    facts = _gathered(asked, before, emit)
    name = View(facts).cluster
    if before is not None and before.snapshot.cluster == name:
        last: Snapshot | None = before.snapshot
    else:
        of_name = _read(_folder(name) / FILE)
        last = of_name.snapshot if of_name else None
    now = snapshot(facts, name, last)
    differences = changes(last, now) if last else ()
    addresses = tuple(node.address for node in facts.nodes)
    _store(_Stored(asked.ssh, addresses, now))
    return Observation(datetime.now(UTC).isoformat(timespec="seconds"), now, differences, is_first=last is None)


def _gathered(asked: Reach, before: _Stored | None, emit: Emit) -> ClusterFacts:
    """Return what the cluster says by the asked node, or by one that answered last time."""
    try:
        return gather(asked, emit)
    except ProvisionError:  # it may also have gone in the middle of its answer
        addresses = before.addresses if before else ()
        for address in addresses:
            if address != asked.destination.host:
                with suppress(ProvisionError):
                    return gather(asked.at(address), emit)
        raise


def _folder(cluster: str) -> Path:
    return paths.state("clusters") / (re.sub(r"[^A-Za-z0-9._-]", "_", cluster).lstrip(".") or "_")


def _store(stored: _Stored) -> None:
    """Write it into the cluster's folder, where the next one finds it."""
    folder = _folder(stored.snapshot.cluster)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = folder / f"{FILE}.{os.getpid()}"
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump({"format": FORMAT, **asdict(stored)}, file)
    part.replace(folder / FILE)


def _last(asked: Reach) -> _Stored | None:
    """Return what was stored when the same node was asked; None where it never was."""
    for file in sorted(paths.state("clusters").glob(f"*/{FILE}")):
        stored = _read(file)
        if stored is not None and stored.asked == asked.ssh:
            return stored
    return None


def _read(file: Path) -> _Stored | None:
    """Return what is stored there; None where this version wrote nothing: there is nothing to compare with then."""
    try:
        content: Mapping[str, Any] = json_value(text_of(file))
        if content["format"] != FORMAT:
            return None
        last = Snapshot(**content["snapshot"])
        last = replace(
            last, active=tuple(last.active), restless=tuple(last.restless), weaknesses=tuple(last.weaknesses)
        )
        return _Stored(str(content["asked"]), tuple(map(str, content["addresses"])), last)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def snapshot_text(now: Snapshot, at: str, *, is_first: bool) -> str:
    """Return how it is, in a line: what a watch begins with."""
    state = now.votes if now.is_quorate else "no quorum"
    line = f"{at} {now.cluster}: {state}, config_version {now.version}"
    away = [name for name, joined in now.members.items() if not joined]
    if away:
        line += f", not joined: {', '.join(away)}"
    if is_first:
        line += "; the first look, there is nothing to compare it with"
    return safe_line(line)


def change_text(change: Change, at: str, style: Style = PLAIN) -> str:
    """One change in a line."""
    mark = style.paint("worse", "red", "bold") if change.is_worse else style.paint("     ", "green")
    subject = f"{change.node}: " if change.node else ""
    return f"{at} {mark} {change.kind}: {safe_line(subject + change.message)}"


# What changed between two observations: membership, quorum, ring, version, packets turned away.

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
