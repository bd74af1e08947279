"""What was seen of a cluster, a row for each node, and below it what is wrong, what proves it, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from provisioner.repair.changes import Change, Snapshot
from provisioner.repair.cluster_conditions import votes_text
from provisioner.repair.conditions import Condition, Diagnosis
from provisioner.repair.facts import ClusterFacts, NodeFacts
from provisioner.repair.view import DEAD, View, version_of
from provisioner.report.style import PLAIN, Style, count_text, indent, safe_line, safe_text, table

HEAD = ("node", "address", "version", "corosync", "quorate", "votes", "guests")
UNKNOWN = "?"
ABSENT = "-"


def cluster_text(facts: ClusterFacts, diagnoses: Sequence[Diagnosis], style: Style = PLAIN) -> str:
    """All of it, for people."""
    findings = [diagnosis for diagnosis in diagnoses if diagnosis.condition is not Condition.HEALTHY]
    lines = [style.paint(_head(facts), "bold"), nodes_text(facts, style), ""]
    lines += [diagnosis_text(diagnosis, style) for diagnosis in diagnoses]
    if findings:
        lines.append(f"{count_text(len(findings), 'finding')}.")
    return "\n".join(lines)


def nodes_text(facts: ClusterFacts, style: Style = PLAIN) -> str:
    """A row for each node: those that answered, then those that did not."""
    view = View(facts)
    rows = [_row(node, view) for node in facts.nodes]
    for member in view.members:
        if facts.node(member.name) is None:
            votes, addresses = str(member.votes), " ".join(member.addresses)
            joined = "joined" if view.is_present(member.nodeid) else "silent"
            rows.append((member.name, addresses, UNKNOWN, joined, UNKNOWN, votes, UNKNOWN))
    return table(HEAD, rows, style)


def diagnosis_text(diagnosis: Diagnosis, style: Style = PLAIN) -> str:
    """One condition: what is wrong, the lines that prove it, what to do."""
    if diagnosis.condition is Condition.HEALTHY:
        return style.paint(f"Healthy: {safe_text(diagnosis.message)}.", "green")
    mark = style.paint("FAIL", "red", "bold")
    subject = f"{safe_line(diagnosis.node)}: " if diagnosis.node else ""
    lines = [f"{mark} {subject}{diagnosis.condition.value}: {safe_text(diagnosis.message)}"]
    lines += [indent(f"| {safe_line(line)}") for line in diagnosis.evidence]
    if diagnosis.advice:
        lines.append(indent(style.paint("What to do:", "bold") + " " + safe_text(diagnosis.advice)))
    if diagnosis.runbook:
        lines.append(indent(f"Runbook: {diagnosis.runbook}"))
    return "\n".join(lines)


def cluster_content(facts: ClusterFacts, diagnoses: Sequence[Diagnosis]) -> dict[str, Any]:
    """The cluster, its nodes and what is wrong, for machine-readable output.

    ``votes`` are those of the lead's partition, None where nobody has quorum.
    """
    view = View(facts)
    return {
        "cluster": view.cluster,
        "asked": facts.asked,
        "lead": view.reference_name if view.has_quorum else None,
        "is_quorate": view.has_quorum,
        "config_version": view.version or None,
        "votes": _votes_content(view),
        "nodes": [_content(node, view) for node in facts.nodes],
        "silent": list(facts.silent),
        "diagnoses": list(diagnoses),
    }


def _votes_content(view: View) -> dict[str, int] | None:
    quorum = view.quorum if view.has_quorum else None
    if quorum is None:
        return None
    return {"present": sum(quorum.present.values()), "expected": quorum.expected, "needed": quorum.needed}


def snapshot_text(now: Snapshot, at: str, *, is_first: bool) -> str:
    """How it is, in a line: what a watch begins with."""
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


def _head(facts: ClusterFacts) -> str:
    view = View(facts)
    if view.reference is None:
        return f"{safe_line(facts.asked)} is in no cluster"
    state = votes_text(view.quorum) if view.has_quorum and view.quorum else "no quorum"
    return f"Cluster {safe_line(view.cluster)}: {state}"


def _row(node: NodeFacts, view: View) -> tuple[str, ...]:
    member = view.member(node.name)
    version = version_of(node)
    guests = node.guests.get(node.name)
    return (
        node.name,
        node.address,
        ABSENT if version is None else str(version),
        node.units.get("corosync", UNKNOWN),
        _quorate_text(node),
        str(member.votes) if member else ABSENT,
        UNKNOWN if guests is None else str(len(guests)),
    )


def _quorate_text(node: NodeFacts) -> str:
    """Whether the node has quorum; one that says nothing of it has none where its corosync is dead."""
    if node.quorum is not None:
        return "yes" if node.quorum.is_quorate else "no"
    return "no" if node.units.get("corosync", UNKNOWN) in DEAD else UNKNOWN


def _content(node: NodeFacts, view: View) -> dict[str, Any]:
    member = view.member(node.name)
    return {
        "name": node.name,
        "address": node.address,
        "proxmox": node.version,
        "units": node.units,
        "config_version": {
            "running": node.running_version,
            "etc": node.local_conf.version if node.local_conf else None,
            "pve": node.pve_conf.version if node.pve_conf else None,
        },
        "is_quorate": node.quorum.is_quorate if node.quorum else None,
        "votes": member.votes if member else None,
        "clock_offset_s": node.clock_offset_s,
        "links": node.links,
        "guests": {name: [guest.vmid for guest in guests] for name, guests in node.guests.items()},
        "ha_is_idle": node.ha.is_idle if node.ha else None,
        "unread": node.unread,
    }
