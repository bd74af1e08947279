"""A check of a cluster and the record of a repair as web pages that need nothing else; whatever was said is escaped."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from provisioner.repair.conditions import Condition, Diagnosis
from provisioner.repair.facts import ClusterFacts, CorosyncConf, NodeFacts
from provisioner.repair.record import CommandRecord, Record, StepRecord, StepStatus
from provisioner.report.cluster_picture import node_names, picture, state_of
from provisioner.report.page import page, table_html
from provisioner.report.style import duration_text, markup_text

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
    cluster = _cluster_name(facts)
    parts = [
        f'<p class="dim">{markup_text(at)}, asked: {markup_text(facts.asked)}</p>',
        picture(facts),
        "<h2>Nodes</h2>",
        table_html(NODE_HEAD, [_node_row(facts, name) for name in node_names(facts)]),
        "<h2>Findings</h2>",
        *(_finding(one) for one in findings),
    ]
    return page(f"Cluster {cluster}".strip(), parts)


def record_html(record: Record) -> str:
    """What a repair did: what was so before, each step with its commands, codes, output and times, and what is so."""
    ended = record.ended or "not ended"
    rows = [
        ("runbook", record.runbook),
        ("cluster", record.cluster),
        ("lead", record.lead),
        ("began", record.began),
        ("ended", ended),
        ("backup", record.backup or "none was needed"),
    ]
    said = f'<section class="item bad"><p>{markup_text(record.error)}</p></section>' if record.error else ""
    parts = [_outcome(record), said, table_html(("", ""), rows)]
    parts += ["<h2>Before</h2>", *(_finding(one) for one in record.before)] if record.before else []
    parts += ["<h2>Steps</h2>", *(_step(number, one) for number, one in enumerate(record.steps, 1))]
    parts += ["<h2>After</h2>", *(_finding(one) for one in record.after)] if record.after else []
    return page(f"{record.runbook}: {record.node or record.lead}", parts)


def _outcome(record: Record) -> str:
    if record.error:
        return '<p class="bad">It did not come to its end.</p>'
    return '<p class="good">Done.</p>' if record.ended else '<p class="mind">It has no end: the run was cut off.</p>'


def _finding(finding: Diagnosis) -> str:
    evidence = f"<pre>{markup_text(chr(10).join(finding.evidence))}</pre>" if finding.evidence else ""
    runbook = f'<p class="dim">Runbook: {markup_text(finding.runbook)}</p>' if finding.runbook else ""
    advice = f"<p>What to do: {markup_text(finding.advice)}</p>" if finding.advice else ""
    name = f"<strong>{markup_text(finding.node or 'cluster')}: {markup_text(finding.condition.value)}</strong>"
    head = f"<p>{name} {markup_text(finding.message)}</p>"
    mood = MOODS.get(finding.condition, "bad")
    return f'<section class="item {mood}">{head}{evidence}{advice}{runbook}</section>'


def _step(number: int, step: StepRecord) -> str:
    mood = STATUS_MOODS.get(step.status, "mind")
    head = f"<p><strong>{number}. {markup_text(step.id)}</strong> <span>({markup_text(step.status.value)})</span></p>"
    said = f"<p>{markup_text(step.message)}</p>" if step.message else ""
    commands = "".join(_command(one) for one in step.commands)
    return f'<section class="item {mood}">{head}<p class="dim">{markup_text(step.does)}</p>{said}{commands}</section>'


def _command(command: CommandRecord) -> str:
    code = "not known" if command.code is None else str(command.code)
    head = f"{command.host}$ {shlex.join(command.argv)}"
    end = f"exit code {code}, {duration_text(command.elapsed_s)}"
    output = f"{markup_text(command.output.rstrip())}\n" if command.output.strip() else ""
    return f'<pre>{markup_text(head)}\n{output}<span class="dim">{markup_text(end)}</span></pre>'


def _node_row(facts: ClusterFacts, name: str) -> tuple[str, ...]:
    node = facts.node(name)
    if node is None:
        silent = next((one for one in facts.silent if one.name == name), None)
        said = f"{state_of(facts, name)}: {silent.why}" if silent else state_of(facts, name)
        return (name, said, silent.address if silent else UNKNOWN, UNKNOWN, _votes(facts, name), *[UNKNOWN] * 3)
    running = UNKNOWN if node.running_version is None else str(node.running_version)
    lists = (_version(node.pve_conf), _version(node.local_conf), running)
    return (name, state_of(facts, name), node.address, node.version or UNKNOWN, _votes(facts, name), *lists)


def _votes(facts: ClusterFacts, name: str) -> str:
    lead = facts.lead
    seen: Iterable[NodeFacts] = (*([lead] if lead else []), *facts.nodes)
    members = (conf.member(name) for one in seen if (conf := one.pve_conf or one.local_conf))
    return next((str(one.votes) for one in members if one), UNKNOWN)


def _version(conf: CorosyncConf | None) -> str:
    return UNKNOWN if conf is None else str(conf.version)


def _cluster_name(facts: ClusterFacts) -> str:
    nodes = (*([facts.lead] if facts.lead else []), *facts.nodes)
    confs = (one.pve_conf or one.local_conf for one in nodes)
    return next((one.cluster for one in confs if one), "")
