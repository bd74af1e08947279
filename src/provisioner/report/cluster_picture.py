"""A cluster as a small picture (inline SVG): its nodes in a circle, and between them corosync's word on the links."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations

from provisioner.repair.facts import ClusterFacts, Member, NodeFacts
from provisioner.report.html import Markup
from provisioner.report.style import markup_text

SIZE = 460
RADIUS = 170
DOT = 30
SHOWN = 14
"""How many characters of a name fit beside a dot."""


def picture(facts: ClusterFacts) -> Markup:
    """The SVG; it names its colours by classes, and says in its title what can be seen."""
    names = list(node_names(facts))
    places = {name: _place(number, len(names)) for number, name in enumerate(names)}
    states = link_states(facts)
    parts = []
    for name, other in combinations(names, 2):
        state = states.get(frozenset((name, other)))
        if state is not None:
            parts.append(_line(places[name], places[other], state))
    parts += [_dot(places[name], name, state_of(facts, name)) for name in names]
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
    if of == 1:
        return SIZE / 2, SIZE / 2
    angle = 2 * math.pi * number / of - math.pi / 2
    return SIZE / 2 + RADIUS * math.cos(angle), SIZE / 2 + RADIUS * math.sin(angle)


def _line(one: tuple[float, float], other: tuple[float, float], state: str) -> str:
    (x1, y1), (x2, y2) = one, other
    return f'<line class="{state}" x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}"/>'


def _dot(place: tuple[float, float], name: str, state: str) -> str:
    x, y = place
    short = name if len(name) <= SHOWN else f"{name[: SHOWN - 1]}…"
    title = f"<title>{markup_text(f'{name}: {state}')}</title>"
    return (
        f'<circle class="{state}" cx="{x:.0f}" cy="{y:.0f}" r="{DOT}">{title}</circle>'
        f'<text x="{x:.0f}" y="{y + 5:.0f}">{markup_text(short)}</text>'
    )
