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


def graph_text(graph: Graph, style: Style = PLAIN, signs: Signs = UNICODE) -> str:
    """Hosts with their containers, services and what each of them asks; then models and what is elsewhere."""
    trees: list[Tree] = []
    for host in graph.hosts:
        boxes = [_box(box, graph, style, signs) for box in graph.boxes if box.host == host.name]
        trees.append((f"{style.paint(safe_line(host.name), 'bold')} ({safe_line(host.words)})", boxes))
    for kind, title in (("model", "models"), ("upstream", "elsewhere")):
        named = [one for one in graph.outside if one.kind == kind]
        if named:
            width = max(len(one.name) for one in named)
            trees.append((style.paint(title, "bold"), [(_outside(one, width, style), ()) for one in named]))
    return "\n\n".join("\n".join([head, *_lines(branches, signs)]) for head, branches in trees)


def _lines(trees: Sequence[Tree], signs: Signs, before: str = "") -> Iterator[str]:
    for place, (text, branches) in enumerate(trees, 1):
        is_last = place == len(trees)
        yield before + (signs.last if is_last else signs.branch) + text
        yield from _lines(branches, signs, before + (" " * len(signs.beside) if is_last else signs.beside))


def _outside(one: Outside, width: int, style: Style) -> str:
    return f"{safe_line(one.name):<{width}}  {style.paint(safe_line(one.words), 'dim')}"


def _box(box: Box, graph: Graph, style: Style, signs: Signs) -> Tree:
    gpu = f" ({safe_line(box.gpu)})" if box.gpu else ""
    return (
        style.paint(safe_line(box.name), "bold") + gpu,
        [_service(one, graph, style, signs) for one in box.services],
    )


def _service(service: Service, graph: Graph, style: Style, signs: Signs) -> Tree:
    port = f" :{service.port}" if service.port else ""
    why = f", because {', '.join(service.needed_by)} on another host needs it" if service.needed_by else ""
    lan = style.paint(f" open to the LAN{safe_line(why)}", "yellow") if service.on_lan else ""
    edges = [edge for edge in graph.edges if edge.source == service.id]
    width = max(map(len, service.aliases), default=0)
    aliases: list[Tree] = [
        (_alias(alias, width, [edge for edge in edges if edge.alias == alias], graph, signs), ())
        for alias in service.aliases
    ]
    others: list[Tree] = [(f"{edge.line} {signs.arrow} {_target(edge, graph)}", ()) for edge in edges if not edge.alias]
    return f"{style.paint(safe_line(service.role), 'green')}{port}{lan}", [*aliases, *others]


def _alias(alias: str, width: int, edges: Sequence[Edge], graph: Graph, signs: Signs) -> str:
    ranks: dict[int, list[str]] = {}
    for edge in edges:
        ranks.setdefault(edge.rank, []).append(_target(edge, graph))
    engines = ", else ".join(" and ".join(ranks[rank]) for rank in sorted(ranks))
    return f"{safe_line(alias):<{width}} {signs.arrow} {engines}"


def _target(edge: Edge, graph: Graph) -> str:
    service = graph.services.get(edge.target)
    if service is None:
        return safe_line(edge.target.partition(":")[2])
    model = f" ({edge.model})" if edge.model else ""
    return safe_line(service.id + model)
