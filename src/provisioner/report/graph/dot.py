"""A lab's connections in Graphviz' language (DOT), for other tools: a cluster for each host and each container.

Names are data: each stands in quotes, with backslashes and quotes escaped, so that none of them ends its string,
becomes a port or HTML, or is read as an escape sequence.
"""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.report.graph.topology import LAN, Box, Edge, Graph, Line, Outside, Service
from provisioner.report.style import safe_line

STYLES: dict[Line, str] = {
    "first": "solid",
    "fallback": "dashed",
    "serves": "dotted",
    "uses": "solid",
    "exposed": "bold",
}
SHAPES = {"model": "note", "upstream": "ellipse"}
INDENT = "  "


def graph_dot(graph: Graph) -> str:
    """The graph as the text of one ``digraph``, the same for the same file."""
    lines = [f"digraph {_quoted(graph.lab)} {{"]
    lines += [INDENT + line for line in _statements(graph)]
    lines.append("}")
    return "\n".join(lines)


def _statements(graph: Graph) -> Iterator[str]:
    yield "rankdir=LR;"
    yield "node [shape=box];"
    for host in graph.hosts:
        boxes = [box for box in graph.boxes if box.host == host.name]
        inner = [line for box in boxes for line in _container(box)]
        yield from _cluster(f"host {host.name}", [host.name, host.words], inner)
    for outside in graph.outside:
        yield _outside(outside)
    if any(edge.source == LAN for edge in graph.edges):
        yield f"{_quoted(LAN)} [shape=plaintext, {_label(['clients in the LAN'])}];"
    for edge in graph.edges:
        yield _edge(edge)


def _cluster(name: str, label: list[str], inner: list[str]) -> Iterator[str]:
    # Graphviz draws a frame only around what has this prefix.
    yield f"subgraph {_quoted('cluster ' + name)} {{"
    yield f"{INDENT}{_label(label)};"
    # A cluster without a node is not drawn at all.
    for line in inner or [f'{_quoted(name)} [style=invis, label=""];']:
        yield INDENT + line
    yield "}"


def _container(box: Box) -> Iterator[str]:
    label = [box.name, box.gpu] if box.gpu else [box.name]
    yield from _cluster(f"container {box.name}", label, [_service(service) for service in box.services])


def _service(service: Service) -> str:
    label = [f"{service.role} :{service.port}" if service.port else service.role]
    if service.model:
        label.append(service.model)
    return f"{_quoted(service.id)} [{_label(label)}];"


def _outside(outside: Outside) -> str:
    return f"{_quoted(outside.id)} [shape={SHAPES[outside.kind]}, {_label([outside.name, outside.words])}];"


def _edge(edge: Edge) -> str:
    attributes = [f"style={STYLES[edge.line]}"]
    if edge.alias:
        order = f" ({edge.rank})" if edge.rank > 1 else ""
        attributes.append(_label([edge.alias + order]))
    return f"{_quoted(edge.source)} -> {_quoted(edge.target)} [{', '.join(attributes)}];"


def _label(lines: list[str]) -> str:
    words = "\\n".join(_escaped(line) for line in lines)
    return f'label="{words}"'


def _quoted(name: str) -> str:
    return f'"{_escaped(name)}"'


def _escaped(name: str) -> str:
    return safe_line(name).replace("\\", "\\\\").replace('"', '\\"')
