"""What is wrong with a cluster as a whole: quorum, two halves, clocks, and what could not be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median

from provisioner.repair.conditions import Condition, Diagnosis
from provisioner.repair.facts import NodeFacts, Quorum
from provisioner.repair.view import View, is_clustered, is_running, versions_text

CLOCK_SKEW_LIMIT_S = 5.0
"""Between two nodes. corosync needs no clocks; but the lines of two logs can no longer be put in order, a certificate
that a rejoin has just made is not valid yet, and at 300 s Proxmox VE refuses the tickets of the other node.
"""


def cluster_diagnoses(view: View) -> Iterator[Diagnosis]:
    """The conditions of the cluster."""
    yield from _halves(view)
    is_told = any(node.quorum is not None for node in view.clustered)
    if is_told and not view.has_quorum:
        yield _no_quorum(view)
    yield from _skewed(view)
    for node in view.facts.nodes:
        yield from _unknown(node)


def votes_text(quorum: Quorum) -> str:
    """The votes that are there, as they are counted: not nodes."""
    return f"{sum(quorum.present.values())} of {quorum.expected} votes, {quorum.needed} needed"


def _no_quorum(view: View) -> Diagnosis:
    """Nobody has quorum; the votes that each node counts and the silent nodes are the evidence."""
    evidence = list[str]()
    for node in sorted(view.clustered, key=lambda node: node.name):
        if node.quorum is not None:
            evidence.append(f"{node.name}: {votes_text(node.quorum)}")
    for silent in view.facts.silent:
        if silent.name:
            evidence.append(f"{silent.name}: {silent.address}: {silent.why}")
    return Diagnosis(
        Condition.NO_QUORUM,
        "",
        "no node that answered has quorum: /etc/pve cannot be written, guests cannot be started",
        tuple(evidence),
        "lost-quorum",
        "Bring back the members that are missing. Only if they are proved off: provision runbook show lost-quorum",
    )


def _halves(view: View) -> Iterator[Diagnosis]:
    """Two quorate partitions (somebody ran ``pvecm expected``), or nodes without quorum that do not see each other."""
    sides = _sides(view)
    if len(sides) < 2:  # noqa: PLR2004 - two halves
        return
    if view.has_quorum:
        yield Diagnosis(
            Condition.PARTITION,
            "",
            "two parts of the cluster are quorate at once: both write their own /etc/pve",
            sides,
            advice="Stop corosync in one of the parts now, and keep a copy of its /var/lib/pve-cluster/config.db.",
        )
    elif all(is_running(node) for node in view.clustered):
        yield Diagnosis(
            Condition.PARTITION,
            "",
            "nodes that answer do not see each other",
            sides,
            advice="Look at the network between the nodes: UDP 5405 of each link, both ways; a firewall; the switch.",
        )


def _sides(view: View) -> tuple[str, ...]:
    """The partitions that share no node with any other, each with the nodes that answered from it.

    Where some nodes have quorum only theirs count.
    """
    names_by_partition = dict[frozenset[int], list[str]]()
    for node in view.clustered:
        counts = node.is_quorate or not view.has_quorum
        if counts and node.quorum is not None:
            partition = frozenset(node.quorum.present)
            names_by_partition.setdefault(partition, []).append(node.name)
    sides = list[str]()
    for partition, names in names_by_partition.items():
        if _is_apart(partition, names_by_partition):
            nodeids = ", ".join(map(str, sorted(partition)))
            sides.append(f"{', '.join(names)}: nodes {nodeids}")
    return tuple(sides)


def _is_apart(partition: frozenset[int], partitions: Iterable[frozenset[int]]) -> bool:
    """Whether the partition shares no node with any other one."""
    others = [other for other in partitions if other != partition]
    return all(partition.isdisjoint(other) for other in others)


def _skewed(view: View) -> Iterator[Diagnosis]:
    """That clocks differ; of two nodes nobody can say which one is wrong."""
    offsets = sorted((node.clock_offset_s, node.name) for node in view.clustered)
    if not offsets:
        return
    low, first = offsets[0]
    high, last = offsets[-1]
    if high - low <= CLOCK_SKEW_LIMIT_S:
        return
    if len(offsets) == 2:  # noqa: PLR2004 - one and another
        yield _skew("", f"the clock of {last} is {high - low:.1f} s ahead of that of {first}")
    else:
        yield from _skewed_of_many(offsets)


def _skewed_of_many(offsets: list[tuple[float, str]]) -> Iterator[Diagnosis]:
    """The nodes whose clocks are far from the median of all."""
    middle = median(offset for offset, _ in offsets)
    for offset, name in offsets:
        ahead = offset - middle
        if abs(ahead) > CLOCK_SKEW_LIMIT_S:
            direction = "ahead of" if ahead > 0 else "behind"
            yield _skew(name, f"its clock is {abs(ahead):.1f} s {direction} the other nodes'")


def _skew(name: str, message: str) -> Diagnosis:
    advice = "Look at chronyc tracking on the nodes, and let chrony set the clock before a repair."
    return Diagnosis(Condition.CLOCK_SKEW, name, message, (f"limit: {CLOCK_SKEW_LIMIT_S:.0f} s",), advice=advice)


def _unknown(node: NodeFacts) -> Iterator[Diagnosis]:
    """What could not be read of a node that is in a cluster, so that nobody takes it for healthy."""
    if not is_clustered(node) and not node.unread:
        return
    missing = tuple(_missing(node))
    if missing:
        what = "some of it could not be read: nobody can say that it is in order"
        advice = "Look at systemctl status corosync pve-cluster there, then check again."
        yield Diagnosis(Condition.UNKNOWN, node.name, what, (*missing, versions_text(node)), advice=advice)


def _missing(node: NodeFacts) -> Iterator[str]:
    """What a diagnosis of the node would need and could not be read, and why."""
    pmxcfs = node.units.get("pve-cluster", "active")
    if pmxcfs != "active":
        yield f"pve-cluster: {pmxcfs}: /etc/pve is not there"
    for name, why in node.unread.items():
        yield f"{name}: {why}"
    if not node.key_digest and is_clustered(node):
        yield "authkey: there is none, or it cannot be read"
    if not node.units:
        yield "units: systemd does not answer"
    yield from _missing_of_corosync(node)


def _missing_of_corosync(node: NodeFacts) -> Iterator[str]:
    if is_running(node) and node.running_version is None:
        yield "cmap: corosync runs, and does not say its version"
    is_silent = node.quorum is None and "quorum" not in node.unread
    if is_silent and node.units.get("corosync") == "active":
        yield "quorum: corosync is active, and does not answer"
