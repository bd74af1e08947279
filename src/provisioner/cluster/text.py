"""A cluster with what is wrong with it, and the record of a repair: as text and for machine-readable output."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from provisioner.cluster.diagnosis import votes_text
from provisioner.cluster.facts import ClusterFacts, Condition, Diagnosis, NodeFacts
from provisioner.cluster.record import CommandRecord, Record, StepRecord, StepStatus
from provisioner.cluster.redundancy import losses_text
from provisioner.cluster.view import DEAD, View, version_of
from provisioner.cluster.votes import can_lose
from provisioner.report.style import PLAIN, Style, count_text, duration_text, indent, safe_line, safe_text, table

HEAD = ("node", "address", "version", "corosync", "quorate", "votes", "guests")
UNKNOWN = "?"
ABSENT = "-"
MARKS = {
    StepStatus.DONE: ("done", "green"),
    StepStatus.UNCHANGED: ("ok", "dim"),
    StepStatus.LEFT_OUT: ("left out", "dim"),
    StepStatus.FAILED: ("FAIL", "red"),
    StepStatus.NOT_REACHED: ("-", "dim"),
    StepStatus.BEGUN: ("cut", "yellow"),
}
OUTPUT_LINES = 12
RUN_HEAD = ("run", "cluster", "node", "ended", "saved")


def cluster_text(facts: ClusterFacts, diagnoses: Sequence[Diagnosis], style: Style = PLAIN) -> str:
    """All of it, for people."""
    findings = [diagnosis for diagnosis in diagnoses if diagnosis.condition is not Condition.HEALTHY]
    losses = losses_text(View(facts))
    lines = [style.paint(_head(facts), "bold"), nodes_text(facts, style)]
    if losses:
        lines.append(f"{losses[:1].upper()}{losses[1:]}.")
    lines.append("")
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

    ``votes`` are those of the lead's partition, ``can_lose`` the nodes of which any one can go and quorum stays; both
    are None where nobody has quorum.
    """
    view = View(facts)
    return {
        "cluster": view.cluster,
        "asked": facts.asked,
        "lead": view.reference_name if view.has_quorum else None,
        "is_quorate": view.has_quorum,
        "config_version": view.version or None,
        "votes": _votes_content(view),
        "can_lose": can_lose(view.quorum, view.members) if view.quorum and view.has_quorum else None,
        "nodes": [_content(node, view) for node in facts.nodes],
        "silent": list(facts.silent),
        "diagnoses": list(diagnoses),
    }


def _votes_content(view: View) -> dict[str, int] | None:
    quorum = view.quorum if view.has_quorum else None
    if quorum is None:
        return None
    return {"present": quorum.total, "expected": quorum.expected, "needed": quorum.needed}


def _head(facts: ClusterFacts) -> str:
    """The cluster's name and votes, in a line."""
    view = View(facts)
    if view.reference is None:
        return f"{safe_line(facts.asked)} is in no cluster"
    state = votes_text(view.quorum) if view.has_quorum and view.quorum else "no quorum"
    return f"Cluster {safe_line(view.cluster)}: {state}"


def _row(node: NodeFacts, view: View) -> tuple[str, ...]:
    """The row of a node that answered."""
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
    """Return whether the node has quorum; one that says nothing of it has none where its corosync is dead."""
    if node.quorum is not None:
        return "yes" if node.quorum.is_quorate else "no"
    return "no" if node.units.get("corosync", UNKNOWN) in DEAD else UNKNOWN


def _content(node: NodeFacts, view: View) -> dict[str, Any]:
    """Return what a node said, for machine-readable output."""
    member = view.member(node.name)
    return {
        "name": node.name,
        "hostname": node.hostname or node.name,
        "address": node.address,
        "proxmox": node.version,
        "units": node.units,
        "config_version": {
            "running": node.running_version,
            "etc": node.local_version,
            "pve": node.pve_version,
        },
        "is_quorate": node.quorum.is_quorate if node.quorum else None,
        "votes": member.votes if member else None,
        "clock_offset_s": node.clock_offset_s,
        "links": node.links,
        "guests": {name: [guest.vmid for guest in guests] for name, guests in node.guests.items()},
        "ha_is_idle": node.ha.is_idle if node.ha else None,
        "unread": node.unread,
    }


def numbered(steps: Sequence[str]) -> list[str]:
    """The steps in their order, each with its number."""
    return [indent(f"{number}. {step}") for number, step in enumerate(steps, start=1)]


def record_text(record: Record, folder: str = "", style: Style = PLAIN, *, with_commands: bool = True) -> str:
    """Return what a run did: each step (with its commands and what they said), and how it ended."""
    lines = [style.paint(f"{safe_line(record.node)} in cluster {safe_line(record.cluster)}: {record.runbook}", "bold")]
    for step in record.steps:
        lines += _step_lines(step, style, with_commands=with_commands)
    if record.error:
        lines.append(style.paint("Failed: ", "red", "bold") + safe_text(record.error))
    if record.backup:
        lines.append(f"Backup: {record.backup}")
    if folder:
        lines.append(f"Record: {folder}")
    return "\n".join(lines)


def _step_lines(step: StepRecord, style: Style, *, with_commands: bool) -> list[str]:
    """Return how a step ended, and with its commands what they wrote."""
    word, colour = MARKS[step.status]
    lines = [f"{style.paint(f'{word:4}', colour)} {step.id}: {step.does}"]
    if with_commands and step.status is not StepStatus.NOT_REACHED:
        lines += [indent(_command_text(command), 5) for command in step.commands]
    if step.message:
        lines.append(indent(safe_text(step.message), 5))
    return lines


def _command_text(command: CommandRecord) -> str:
    """A command, its code and time, and the last lines that it wrote."""
    code = "?" if command.code is None else str(command.code)
    head = f"{command.host}$ {safe_line(shlex.join(command.argv))}  ({code}, {duration_text(command.elapsed_s)})"
    output = safe_text(command.output).splitlines()
    shown = output[-OUTPUT_LINES:]
    if len(output) > OUTPUT_LINES:
        shown.insert(0, f"… {len(output) - OUTPUT_LINES} lines before")
    return "\n".join([head, *map(indent, shown)])


def runs_text(rows: Sequence[tuple[str, Record, Sequence[str]]], style: Style = PLAIN) -> str:
    """The runs that left a backup: name, cluster, node, how it ended, and what was saved."""
    if not rows:
        return "There is no backup: no repair was run from this machine."
    cells = []
    for name, record, saved in rows:
        cells.append((name, record.cluster, record.node, _ended(record), ", ".join(saved) or "nothing"))
    return table(RUN_HEAD, cells, style)


def _ended(record: Record) -> str:
    if not record.ended:
        return "killed"
    return "failed" if record.error else record.ended
