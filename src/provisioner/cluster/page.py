"""A check of a cluster and the record of a repair as web pages that need nothing else; all text is escaped."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, count

from provisioner.cluster.facts import ClusterFacts, Condition, CorosyncConf, Diagnosis, Member, NodeFacts
from provisioner.cluster.record import CommandRecord, Record, StepRecord, StepStatus
from provisioner.report.html import NOTHING, Markup, page, quiet, table_html, tag
from provisioner.report.style import duration_text, markup_text

MOODS = {
    Condition.HEALTHY: "good",
    Condition.DEGRADED: "mind",
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
SIZE = 460
RADIUS = 170
DOT = 30
SHOWN = 14
"""How many characters of a name fit beside a dot."""


def check_html(facts: ClusterFacts, findings: Sequence[Diagnosis], at: str) -> str:
    """Show what the check saw ``at`` a time (ISO 8601): a picture, a row for each node, the findings with evidence."""
    parts = [
        quiet(at, ", asked: ", facts.asked),
        picture(facts),
        tag("h2", "Nodes"),
        table_html(NODE_HEAD, [_node_row(facts, name) for name in node_names(facts)]),
        *_section("Findings", map(_finding, findings)),
    ]
    conf = next(_confs(facts), None)
    name = conf.cluster if conf else ""
    return page(f"Cluster {name}".strip(), parts)


def record_html(record: Record) -> str:
    """Show what a repair did: the state before, each step with its commands, output and times, the state after."""
    rows = [
        ("runbook", record.runbook),
        ("cluster", record.cluster),
        ("lead", record.lead),
        ("began", record.began),
        ("ended", record.ended or "not ended"),
        ("backup", record.backup or "none was needed"),
    ]
    error = _item("bad", tag("p", record.error)) if record.error else NOTHING
    parts = [_outcome(record), error, table_html(("", ""), rows)]
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


def _outcome(record: Record) -> Markup:
    """Return how the repair ended."""
    if record.error:
        return tag("p", "It did not come to its end.", class_="bad")
    if record.ended:
        return tag("p", "Done.", class_="good")
    return tag("p", "It has no end: the run was cut off.", class_="mind")


def _finding(finding: Diagnosis) -> Markup:
    """One diagnosis with its evidence and what to do."""
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
    """One step with its commands, and how it ended."""
    status = tag("span", f"({step.status.value})")
    parts = [tag("p", tag("strong", f"{number}. {step.id}"), " ", status), quiet(step.does)]
    if step.message:
        parts.append(tag("p", step.message))
    parts += map(_command, step.commands)
    return _item(STATUS_MOODS.get(step.status, "mind"), *parts)


def _command(command: CommandRecord) -> Markup:
    """One command as it was typed, what it wrote, its code and its time."""
    code = "not known" if command.code is None else str(command.code)
    head = f"{command.host}$ {shlex.join(command.argv)}"
    end = f"exit code {code}, {duration_text(command.elapsed_s)}"
    output = f"{command.output.rstrip()}\n" if command.output.strip() else ""
    return tag("pre", f"{head}\n{output}", tag("span", end, class_="dim"))


def _node_row(facts: ClusterFacts, name: str) -> tuple[str, ...]:
    """The row of a node; of one that did not answer: why, where it was asked, and its votes by the others' lists."""
    node = facts.node(name)
    if node is None:
        state, address = state_of(facts, name), UNKNOWN
        silent = facts.silence(name)
        if silent is not None:
            state, address = f"{state}: {silent.why}", silent.address
        return (name, state, address, UNKNOWN, _votes(facts, name), UNKNOWN, UNKNOWN, UNKNOWN)
    lists = map(_version, (node.pve_version, node.local_version, node.running_version))
    return (name, state_of(facts, name), node.address, node.version or UNKNOWN, _votes(facts, name), *lists)


def _votes(facts: ClusterFacts, name: str) -> str:
    """A node's votes, by the first list that has it."""
    for conf in _confs(facts):
        member = conf.member(name)
        if member is not None:
            return str(member.votes)
    return UNKNOWN


def _version(version: int | None) -> str:
    return UNKNOWN if version is None else str(version)


def _confs(facts: ClusterFacts) -> Iterator[CorosyncConf]:
    """The list of members that each node has, the lead's first; of /etc/pve, else corosync's own."""
    nodes = list(facts.nodes)
    if facts.lead is not None:
        nodes.insert(0, facts.lead)
    for node in nodes:
        conf = node.pve_conf or node.local_conf
        if conf is not None:
            yield conf


def picture(facts: ClusterFacts) -> Markup:
    """The SVG; it names its colours by classes, and says in its title what can be seen."""
    names = list(node_names(facts))
    places = {name: _place(number, len(names)) for number, name in enumerate(names)}
    states = link_states(facts)
    parts = []
    for name, other in combinations(names, 2):
        state = states.get(frozenset((name, other)))
        if state is not None:
            parts.append(_link_line(places[name], places[other], state))
    parts += [_node_dot(places[name], name, state_of(facts, name)) for name in names]
    title = f"{len(names)} nodes, {list(states.values()).count('down')} links down"
    body = "".join(parts)
    return Markup(
        f'<svg viewBox="0 0 {SIZE} {SIZE}" width="{SIZE}" height="{SIZE}" role="img" aria-label="{title}">'
        f"<title>{title}</title>{body}</svg>"
    )


def node_names(facts: ClusterFacts) -> tuple[str, ...]:
    """Every node that answered, is in a list of members, or was asked in vain; each once, by name."""
    names = {silent.name for silent in facts.silent}
    for node in facts.nodes:
        names.add(node.name)
        names.update(member.name for member in _members(node))
    return tuple(sorted(names))


def state_of(facts: ClusterFacts, name: str) -> str:
    """``quorate``, ``alone`` (it answers, without quorum) or ``silent``."""
    node = facts.node(name)
    if node is None:
        return "silent"
    return "quorate" if node.quorum and node.quorum.is_quorate else "alone"


def link_states(facts: ClusterFacts) -> Mapping[frozenset[str], str]:
    """By the two nodes' names: ``down`` if either says that one link is, else ``up``; no entry where nobody does."""
    states: dict[frozenset[str], str] = {}
    for node in facts.nodes:
        names = {member.nodeid: member.name for member in _members(node)}
        for link in node.links:
            other = names.get(link.nodeid)
            if not other or other == node.name:
                continue
            pair = frozenset((node.name, other))
            if not link.is_connected:
                states[pair] = "down"
            states.setdefault(pair, "up")
    return states


def _members(node: NodeFacts) -> tuple[Member, ...]:
    """The list of members that the node has; that of /etc/pve, else corosync's own."""
    conf = node.pve_conf or node.local_conf
    return conf.members if conf else ()


def _place(number: int, of: int) -> tuple[float, float]:
    """Return where on the circle the node of that number is."""
    if of == 1:
        return SIZE / 2, SIZE / 2
    angle = 2 * math.pi * number / of - math.pi / 2
    return SIZE / 2 + RADIUS * math.cos(angle), SIZE / 2 + RADIUS * math.sin(angle)


def _link_line(one: tuple[float, float], other: tuple[float, float], state: str) -> str:
    (x1, y1), (x2, y2) = one, other
    return f'<line class="{state}" x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}"/>'


def _node_dot(place: tuple[float, float], name: str, state: str) -> str:
    """A node as a dot with its name; its state is in the dot's class and title."""
    x, y = place
    short = name if len(name) <= SHOWN else f"{name[: SHOWN - 1]}…"
    title = f"<title>{markup_text(f'{name}: {state}')}</title>"
    return (
        f'<circle class="{state}" cx="{x:.0f}" cy="{y:.0f}" r="{DOT}">{title}</circle>'
        f'<text x="{x:.0f}" y="{y + 5:.0f}">{markup_text(short)}</text>'
    )
