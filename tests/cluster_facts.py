"""Clusters as values, for tests: all well unless a test says otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from provisioner.cluster.facts import (
    ClusterFacts,
    CorosyncConf,
    HaState,
    Link,
    Member,
    NodeFacts,
    Peer,
    Pmxcfs,
    Quorum,
    Silent,
)

VERSION = 7
KEY = "a" * 64


def member(number: int, votes: int = 1) -> Member:
    """``pve<number>`` at 10.0.0.<number>."""
    return Member(f"pve{number}", number, votes, (f"10.0.0.{number}",))


def members(count: int, votes: Sequence[int] = ()) -> tuple[Member, ...]:
    """``pve1`` to ``pve<count>``."""
    return tuple(member(number + 1, votes[number] if votes else 1) for number in range(count))


def node(name: str, of: Sequence[Member], present: Sequence[str] | None = None, **changed: Any) -> NodeFacts:
    """A node whose partition has the members ``present`` (all); quorate where they have more than half the votes."""
    own = next(one for one in of if one.name == name)
    there = [one for one in of if present is None or one.name in present]
    total, expected = sum(one.votes for one in there), sum(one.votes for one in of)
    needed = expected // 2 + 1
    quorum = Quorum(total >= needed, expected, total, needed, {one.nodeid: one.votes for one in there})
    conf = CorosyncConf("homelab", VERSION, tuple(of), "c" * 64)
    facts = NodeFacts(
        name,
        own.addresses[0],
        version="pve-manager/9.2.1",
        addresses=("127.0.0.1", *own.addresses),
        units={"corosync": "active", "pve-cluster": "active"},
        pve_conf=conf,
        local_conf=conf,
        running_version=VERSION,
        key_digest=KEY,
        database=(200, 5),
        quorum=quorum,
        joined={one.nodeid: VERSION for one in there},
        running=tuple(of),
        heard={one.nodeid: one.addresses[0] for one in there},
        links=tuple(Link(one.nodeid, 0, one in there) for one in of if one is not own),
        pmxcfs=Pmxcfs(
            name,
            is_quorate=quorum.is_quorate,
            cluster="homelab",
            peers=tuple(Peer(one.name, one.nodeid, one.addresses[0], one in there) for one in of),
        ),
        guests={one.name: () for one in of},
        ha=HaState(),
        known_hosts=tuple(one.name for one in of),
        keys=tuple(one.name for one in of),
        is_writable=quorum.is_quorate,
    )
    return replace(facts, **changed)


def dead(facts: NodeFacts) -> NodeFacts:
    """The node with its corosync ended."""
    return replace(
        facts,
        units={**facts.units, "corosync": "failed"},
        quorum=None,
        running_version=None,
        running=(),
        joined={},
        heard={},
        links=(),
        is_writable=False,
    )


def cluster(
    count: int = 3,
    votes: Sequence[int] = (),
    off: Sequence[str] = (),
    changed: Mapping[str, Mapping[str, Any]] | None = None,
) -> ClusterFacts:
    """A cluster in which the nodes ``off`` do not answer; ``changed``: node → fields that differ."""
    of = members(count, votes)
    there = [one.name for one in of if one.name not in off]
    nodes = tuple(node(name, of, there, **(changed or {}).get(name, {})) for name in there)
    silent = tuple(Silent(one.name, one.addresses[0], "ssh: connect timed out") for one in of if one.name in off)
    return ClusterFacts(there[0], nodes, silent)
