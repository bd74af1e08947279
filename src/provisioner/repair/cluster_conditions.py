"""What is wrong with a cluster as a whole: quorum, two halves, clocks, and what could not be read."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
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
    if not view.has_quorum and any(one.quorum for one in view.clustered):
        yield _no_quorum(view)
    yield from _skewed(view)
    for node in view.facts.nodes:
        yield from _unknown(node)


def votes_text(quorum: Quorum) -> str:
    """The votes that are there, as they are counted: not nodes."""
    return f"{sum(quorum.present.values())} of {quorum.expected} votes, {quorum.needed} needed"


def _no_quorum(view: View) -> Diagnosis:
    asked = sorted((one for one in view.clustered if one.quorum), key=lambda one: one.name)
    evidence = [f"{one.name}: {votes_text(one.quorum)}" for one in asked if one.quorum]
    evidence += [f"{one.name}: {one.address}: {one.why}" for one in view.facts.silent if one.name]
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
    groups: dict[frozenset[int], list[str]] = {}
    for node in view.clustered:
        if node.quorum and (node.quorum.is_quorate or not view.has_quorum):
            groups.setdefault(frozenset(node.quorum.present), []).append(node.name)
    apart = [one for one in groups if all(one.isdisjoint(other) for other in groups if other != one)]
    if len(apart) < 2:  # noqa: PLR2004 - two halves
        return
    sides = [f"{', '.join(groups[one])}: nodes {', '.join(map(str, sorted(one)))}" for one in apart]
    if view.has_quorum:
        yield Diagnosis(
            Condition.PARTITION,
            "",
            "two parts of the cluster are quorate at once: both write their own /etc/pve",
            tuple(sides),
            advice="Stop corosync in one of the parts now, and keep a copy of its /var/lib/pve-cluster/config.db.",
        )
    elif all(is_running(one) for one in view.clustered):
        yield Diagnosis(
            Condition.PARTITION,
            "",
            "nodes that answer do not see each other",
            tuple(sides),
            advice="Look at the network between the nodes: UDP 5405 of each link, both ways; a firewall; the switch.",
        )


def _skewed(view: View) -> Iterator[Diagnosis]:
    offsets = sorted((one.clock_offset_s, one.name) for one in view.clustered)
    if len(offsets) < 2 or offsets[-1][0] - offsets[0][0] <= CLOCK_SKEW_LIMIT_S:  # noqa: PLR2004 - one and another
        return
    middle = median(offset for offset, _ in offsets)
    if len(offsets) == 2:  # noqa: PLR2004 - which of two is wrong, nobody can say
        ((low, first), (high, second)) = next(pairwise(offsets))
        yield _skew("", f"the clock of {second} is {high - low:.1f} s ahead of that of {first}")
        return
    for offset, name in offsets:
        if abs(offset - middle) > CLOCK_SKEW_LIMIT_S:
            word = "ahead of" if offset > middle else "behind"
            yield _skew(name, f"its clock is {abs(offset - middle):.1f} s {word} the other nodes'")


def _skew(name: str, message: str) -> Diagnosis:
    advice = "Look at chronyc tracking on the nodes, and let chrony set the clock before a repair."
    return Diagnosis(Condition.CLOCK_SKEW, name, message, (f"limit: {CLOCK_SKEW_LIMIT_S:.0f} s",), advice=advice)


def _unknown(node: NodeFacts) -> Iterator[Diagnosis]:
    if not is_clustered(node) and not node.unread:
        return
    missing = [f"{name}: {why}" for name, why in node.unread.items()]
    if not node.key_digest and is_clustered(node):
        missing.append("authkey: there is none, or it cannot be read")
    if not node.units:
        missing.append("units: systemd does not answer")
    if node.units.get("pve-cluster", "active") != "active":
        missing.insert(0, f"pve-cluster: {node.units['pve-cluster']}: /etc/pve is not there")
    if is_running(node) and node.running_version is None:
        missing.append("cmap: corosync runs, and does not say its version")
    if node.units.get("corosync") == "active" and node.quorum is None and "quorum" not in node.unread:
        missing.append("quorum: corosync is active, and does not answer")
    if missing:
        what = "some of it could not be read: nobody can say that it is in order"
        advice = "Look at systemctl status corosync pve-cluster there, then check again."
        yield Diagnosis(Condition.UNKNOWN, node.name, what, (*missing, versions_text(node)), advice=advice)
