"""A lab's connections as text: a tree of hosts, containers and services, an arrow for each line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from provisioner.report.graph.topology import Box, Edge, Graph, Outside, Service
from provisioner.report.style import PLAIN, Style, safe_line

Tree = tuple[str, Sequence["Tree"]]
"""A line and what hangs on it."""


@dataclass(frozen=True, slots=True)
class Signs:
    """What a tree and its arrows are drawn with."""

    branch: str = "├─ "
    last: str = "└─ "
    beside: str = "│  "
    arrow: str = "→"


UNICODE = Signs()
ASCII = Signs("|- ", "`- ", "|  ", "->")


@dataclass(frozen=True, slots=True)
class _Pen:
    """How the lines of one graph are written."""

    graph: Graph
    style: Style
    signs: Signs


def graph_text(graph: Graph, style: Style = PLAIN, signs: Signs = UNICODE) -> str:
    """Hosts with their containers, services and what each of them asks; then models and what is elsewhere."""
    pen = _Pen(graph, style, signs)
    trees = _host_trees(pen)
    for kind, title in (("model", "models"), ("upstream", "elsewhere")):
        named = [outside for outside in graph.outside if outside.kind == kind]
        if named:
            trees.append((style.paint(title, "bold"), _outside_trees(named, style)))
    blocks = ["\n".join([head, *_lines(branches, signs)]) for head, branches in trees]
    return "\n\n".join(blocks)


def _lines(trees: Sequence[Tree], signs: Signs, before: str = "") -> Iterator[str]:
    """The lines of some trees, each with the branch that it hangs on; ``before`` stands in front of all of them."""
    for place, (text, branches) in enumerate(trees, 1):
        if place == len(trees):
            yield before + signs.last + text
            yield from _lines(branches, signs, before + " " * len(signs.beside))
        else:
            yield before + signs.branch + text
            yield from _lines(branches, signs, before + signs.beside)


def _host_trees(pen: _Pen) -> list[Tree]:
    trees: list[Tree] = []
    for host in pen.graph.hosts:
        boxes = [_box(box, pen) for box in pen.graph.boxes if box.host == host.name]
        name = pen.style.paint(safe_line(host.name), "bold")
        trees.append((f"{name} ({safe_line(host.words)})", boxes))
    return trees


def _outside_trees(named: Sequence[Outside], style: Style) -> list[Tree]:
    width = max(len(outside.name) for outside in named)
    trees: list[Tree] = []
    for outside in named:
        words = style.paint(safe_line(outside.words), "dim")
        trees.append((f"{safe_line(outside.name):<{width}}  {words}", ()))
    return trees


def _box(box: Box, pen: _Pen) -> Tree:
    gpu = f" ({safe_line(box.gpu)})" if box.gpu else ""
    services = [_service(service, pen) for service in box.services]
    return pen.style.paint(safe_line(box.name), "bold") + gpu, services


def _service(service: Service, pen: _Pen) -> Tree:
    role = pen.style.paint(safe_line(service.role), "green")
    port = f" :{service.port}" if service.port else ""
    edges = [edge for edge in pen.graph.edges if edge.source == service.id]
    branches = _alias_trees(service, edges, pen)
    for edge in edges:
        if not edge.alias:
            branches.append((f"{edge.line} {pen.signs.arrow} {_target(edge, pen.graph)}", ()))
    return f"{role}{port}{_lan(service, pen.style)}", branches


def _lan(service: Service, style: Style) -> str:
    """That the service is open to the LAN, and for whom; empty when it is not."""
    if not service.on_lan:
        return ""
    words = " open to the LAN"
    if service.needed_by:
        words += f", because {', '.join(service.needed_by)} on another host needs it"
    return style.paint(safe_line(words), "yellow")


def _alias_trees(service: Service, edges: Sequence[Edge], pen: _Pen) -> list[Tree]:
    width = max(map(len, service.aliases), default=0)
    trees: list[Tree] = []
    for alias in service.aliases:
        own_edges = [edge for edge in edges if edge.alias == alias]
        engines = _engines(own_edges, pen.graph)
        trees.append((f"{safe_line(alias):<{width}} {pen.signs.arrow} {engines}", ()))
    return trees


def _engines(edges: Sequence[Edge], graph: Graph) -> str:
    """The engines of an alias: those of one rank share its requests, the next rank stands in for them."""
    by_rank: dict[int, list[str]] = {}
    for edge in edges:
        by_rank.setdefault(edge.rank, []).append(_target(edge, graph))
    return ", else ".join(" and ".join(by_rank[rank]) for rank in sorted(by_rank))


def _target(edge: Edge, graph: Graph) -> str:
    service = graph.services.get(edge.target)
    if service is None:
        return safe_line(edge.target.partition(":")[2])
    model = f" ({edge.model})" if edge.model else ""
    return safe_line(service.id + model)
