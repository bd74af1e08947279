"""A check of a cluster and the record of a repair as web pages that need nothing else; all text is escaped."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from provisioner.repair.conditions import Condition, Diagnosis
from provisioner.repair.facts import ClusterFacts, CorosyncConf
from provisioner.repair.record import CommandRecord, Record, StepRecord, StepStatus
from provisioner.report.cluster_picture import node_names, picture, state_of
from provisioner.report.html import NOTHING, Markup, page, quiet, table_html, tag
from provisioner.report.style import duration_text

MOODS = {
    Condition.HEALTHY: "good",
    Condition.UNCLUSTERED: "mind",
    Condition.LEFTOVERS: "mind",
    Condition.OFFLINE: "mind",
    Condition.CLOCK_SKEW: "mind",
}
STATUS_MOODS = {
    StepStatus.DONE: "good",
    StepStatus.UNCHANGED: "dim",
    StepStatus.LEFT_OUT: "dim",
    StepStatus.FAILED: "bad",
    StepStatus.NOT_REACHED: "mind",
    StepStatus.BEGUN: "bad",
}
NODE_HEAD = ("node", "state", "address", "Proxmox VE", "votes", "list in /etc/pve", "list of corosync", "runs with")
UNKNOWN = "-"


def check_html(facts: ClusterFacts, findings: Sequence[Diagnosis], at: str) -> str:
    """What the check saw ``at`` a time (ISO 8601): a picture, a row for each node, each finding with its evidence."""
    parts = [
        quiet(at, ", asked: ", facts.asked),
        picture(facts),
        tag("h2", "Nodes"),
        table_html(NODE_HEAD, [_node_row(facts, name) for name in node_names(facts)]),
        *_section("Findings", map(_finding, findings)),
    ]
    return page(f"Cluster {_cluster_name(facts)}".strip(), parts)


def record_html(record: Record) -> str:
    """What a repair did: what was so before, each step with its commands, codes, output and times, and what is so."""
    rows = [
        ("runbook", record.runbook),
        ("cluster", record.cluster),
        ("lead", record.lead),
        ("began", record.began),
        ("ended", record.ended or "not ended"),
        ("backup", record.backup or "none was needed"),
    ]
    parts = [_outcome(record), _error(record.error), table_html(("", ""), rows)]
    if record.before:
        parts += _section("Before", map(_finding, record.before))
    parts += _section("Steps", map(_step, count(1), record.steps))
    if record.after:
        parts += _section("After", map(_finding, record.after))
    return page(f"{record.runbook}: {record.node or record.lead}", parts)


def _section(title: str, items: Iterable[Markup]) -> list[Markup]:
    return [tag("h2", title), *items]


def _item(mood: str, *parts: Markup) -> Markup:
    return tag("section", *parts, class_=f"item {mood}")


def _error(error: str) -> Markup:
    return _item("bad", tag("p", error)) if error else NOTHING


def _outcome(record: Record) -> Markup:
    if record.error:
        return tag("p", "It did not come to its end.", class_="bad")
    if record.ended:
        return tag("p", "Done.", class_="good")
    return tag("p", "It has no end: the run was cut off.", class_="mind")


def _finding(finding: Diagnosis) -> Markup:
    name = tag("strong", f"{finding.node or 'cluster'}: {finding.condition.value}")
    parts = [tag("p", name, " ", finding.message)]
    if finding.evidence:
        parts.append(tag("pre", "\n".join(finding.evidence)))
    if finding.advice:
        parts.append(tag("p", "What to do: ", finding.advice))
    if finding.runbook:
        parts.append(quiet("Runbook: ", finding.runbook))
    return _item(MOODS.get(finding.condition, "bad"), *parts)


def _step(number: int, step: StepRecord) -> Markup:
    status = tag("span", f"({step.status.value})")
    parts = [tag("p", tag("strong", f"{number}. {step.id}"), " ", status), quiet(step.does)]
    if step.message:
        parts.append(tag("p", step.message))
    parts += map(_command, step.commands)
    return _item(STATUS_MOODS.get(step.status, "mind"), *parts)


def _command(command: CommandRecord) -> Markup:
    code = "not known" if command.code is None else str(command.code)
    head = f"{command.host}$ {shlex.join(command.argv)}"
    end = f"exit code {code}, {duration_text(command.elapsed_s)}"
    output = f"{command.output.rstrip()}\n" if command.output.strip() else ""
    return tag("pre", f"{head}\n{output}", tag("span", end, class_="dim"))


def _node_row(facts: ClusterFacts, name: str) -> tuple[str, ...]:
    node = facts.node(name)
    if node is None:
        return _silent_row(facts, name)
    running = UNKNOWN if node.running_version is None else str(node.running_version)
    lists = (_version(node.pve_conf), _version(node.local_conf), running)
    return (name, state_of(facts, name), node.address, node.version or UNKNOWN, _votes(facts, name), *lists)


def _silent_row(facts: ClusterFacts, name: str) -> tuple[str, ...]:
    """The row of a node that did not answer: why, where it was asked, and its votes in the lists of the others."""
    state, address = state_of(facts, name), UNKNOWN
    for silent in facts.silent:
        if silent.name == name:
            state, address = f"{state}: {silent.why}", silent.address
            break
    return (name, state, address, UNKNOWN, _votes(facts, name), UNKNOWN, UNKNOWN, UNKNOWN)


def _votes(facts: ClusterFacts, name: str) -> str:
    for conf in _confs(facts):
        member = conf.member(name)
        if member is not None:
            return str(member.votes)
    return UNKNOWN


def _version(conf: CorosyncConf | None) -> str:
    return UNKNOWN if conf is None else str(conf.version)


def _cluster_name(facts: ClusterFacts) -> str:
    for conf in _confs(facts):
        return conf.cluster
    return ""


def _confs(facts: ClusterFacts) -> Iterator[CorosyncConf]:
    """The list of members that each node has, the lead's first; of /etc/pve, else corosync's own."""
    nodes = list(facts.nodes)
    if facts.lead is not None:
        nodes.insert(0, facts.lead)
    for node in nodes:
        conf = node.pve_conf or node.local_conf
        if conf is not None:
            yield conf
