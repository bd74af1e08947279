"""The drawing of a topology as a file: SVG for light and dark pages, the same bytes each time, and Graphviz' DOT."""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.page.layout import (
    BOX_HEAD,
    FRAME_HEAD,
    FRAME_PADDING,
    HEAD,
    PADDING,
    ROW,
    Arrangement,
    Drawing,
    arrange,
    card_height,
    route,
    strokes,
)
from provisioner.page.topology import LAN, Box, Edge, Graph, Line, Outside, Service
from provisioner.report.style import safe_line
from provisioner.report.svg import STYLE, Rectangle, escaped, rectangle, shown, text, text_width

COLOURS = 6
LEGEND = 56
RIGHT = 40
SMALLEST = 560


def graph_svg(graph: Graph) -> str:
    """The whole picture, well-formed whatever the names are, its size that of its content."""
    arrangement = arrange(graph)
    drawing = route(arrangement)
    width, height = _size(graph, arrangement, drawing)
    size = f'width="{width:.0f}" height="{height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
        f"<title>{escaped(graph.lab)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" {size} rx="10"/>',
        text(40, 40, graph.lab, "title"),
        *_frames(graph, arrangement, drawing),
        *_content(graph, drawing),
        *_titles(graph, arrangement, drawing),
    ]
    if _has_fallbacks(graph):
        parts += _legend(height - LEGEND + 16)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _content(graph: Graph, drawing: Drawing) -> Iterator[str]:
    """What stands in the frames, then the lines, then the dots at which lines begin."""
    places = drawing.places
    for box in graph.boxes:
        yield from _box(box, places[f"box:{box.name}"])
    for outside in graph.outside:
        yield from _outside(outside, places[outside.id])
    if LAN in places:
        yield from _network(places[LAN])
    colours = _colours(graph)
    yield from strokes(drawing, colours)
    for box in graph.boxes:
        yield from _dots(box, places[f"box:{box.name}"], colours)


def _size(graph: Graph, arrangement: Arrangement, drawing: Drawing) -> tuple[float, float]:
    bottoms = [bottom for _, bottom in arrangement.bands[:-1]]
    bottoms += [place.bottom for place in drawing.places.values()]
    below = LEGEND if _has_fallbacks(graph) else 2 * FRAME_PADDING
    return _width(graph, drawing) + RIGHT, max(bottoms, default=100) + FRAME_PADDING + below


def _width(graph: Graph, drawing: Drawing) -> float:
    """Where the rightmost thing ends: a host's title, an item or a line."""
    width: float = SMALLEST
    for host in graph.hosts:
        width = max(width, text_width(f"{host.name}  {host.words}") + 100)
    for place in drawing.places.values():
        width = max(width, place.right)
    for _, points in drawing.lines:
        width = max(width, *(x for x, _ in points))
    return width


def _frames(graph: Graph, arrangement: Arrangement, drawing: Drawing) -> Iterator[str]:
    """A frame for each host, all as wide as the containers of all hosts together, and one for what is elsewhere."""
    left, right = _hosted(graph, drawing)
    for top, bottom in arrangement.bands[:-1]:
        yield _frame(left, right, top, bottom, "frame")
    for place in _away(graph, drawing)[:1]:
        yield _frame(place.x, place.right, *arrangement.bands[-1], "frame away")


def _titles(graph: Graph, arrangement: Arrangement, drawing: Drawing) -> Iterator[str]:
    """What the frames are, on a ground of their own: lines may pass behind."""
    for host, (top, _) in zip(graph.hosts, arrangement.bands, strict=False):
        yield _title(_hosted(graph, drawing)[0], top, host.name, host.words)
    for place in _away(graph, drawing)[:1]:
        yield _title(place.x, arrangement.bands[-1][0], "elsewhere", "")


def _hosted(graph: Graph, drawing: Drawing) -> tuple[float, float]:
    """From where to where containers stand."""
    inside = [drawing.places[f"box:{box.name}"] for box in graph.boxes]
    if not inside:
        return 40.0, 400.0
    return min(place.x for place in inside), max(place.right for place in inside)


def _away(graph: Graph, drawing: Drawing) -> list[Rectangle]:
    return [drawing.places[outside.id] for outside in graph.outside if outside.kind == "upstream"]


def _has_fallbacks(graph: Graph) -> bool:
    return any(edge.line == "fallback" for edge in graph.edges)


def _frame(left: float, right: float, top: float, bottom: float, kind: str) -> str:
    y = top - FRAME_HEAD
    edge = FRAME_PADDING
    return rectangle(Rectangle(left - edge, y, right - left + 2 * edge, bottom + edge - y), kind, 12)


def _title(left: float, top: float, name: str, words: str) -> str:
    ground = Rectangle(left - 4, top - 27, text_width(f"{shown(name)}  {shown(words)}") + 4, 20)
    strong = f'<tspan class="strong">{escaped(shown(name))}</tspan>'
    quiet = f'<tspan class="quiet" dx="10">{escaped(shown(words))}</tspan>'
    return f'{rectangle(ground, "ground", 4)}<text x="{left:.1f}" y="{top - 12:.1f}">{strong}{quiet}</text>'


def _box(box: Box, place: Rectangle) -> Iterator[str]:
    yield rectangle(place, "box")
    yield text(place.x + PADDING, place.y + 20, box.name, "strong")
    if box.gpu:
        yield text(place.right - PADDING, place.y + 20, box.gpu, "quiet", "end")
    y = place.y + BOX_HEAD
    for service in box.services:
        height = card_height(service)
        yield from _card(service, Rectangle(place.x + PADDING, y, place.width - 2 * PADDING, height))
        y += height + PADDING


def _card(service: Service, place: Rectangle) -> Iterator[str]:
    yield rectangle(place, "card", 6)
    yield rectangle(Rectangle(place.x, place.y, 4, place.height), service.stage, 2)
    yield text(place.x + 14, place.y + 19, service.role, "strong")
    words = service.stage + (f", {service.model}" if service.model else "")
    yield text(place.x + 14, place.y + 36, words, "quiet")
    right = place.right - 10
    if service.on_lan:
        yield rectangle(Rectangle(right - 32, place.y + 7, 32, 16), "pill", 8)
        yield text(right - 16, place.y + 19, "LAN", "on small", "middle")
        right -= 40
    if service.port:
        yield text(right, place.y + 19, f":{service.port}", "", "end")
    for row, alias in enumerate(service.aliases):
        yield text(place.right - 14, place.y + HEAD + ROW * (row + 0.5) + 4, alias, "", "end")


def _outside(outside: Outside, place: Rectangle) -> Iterator[str]:
    yield rectangle(place, "card", 6)
    yield rectangle(Rectangle(place.x, place.y, 4, place.height), outside.kind, 2)
    yield text(place.x + 14, place.y + 19, outside.name, "strong")
    yield text(place.x + 14, place.y + 36, outside.words, "quiet")


def _network(place: Rectangle) -> Iterator[str]:
    yield rectangle(place, "card", 22)
    yield text(place.x + place.width / 2, place.y + 19, "LAN", "strong", "middle")
    yield text(place.x + place.width / 2, place.y + 36, "clients", "quiet", "middle")


def _colours(graph: Graph) -> dict[tuple[str, str], str]:
    """A colour for each alias, so that an eye can follow its lines."""
    colours: dict[tuple[str, str], str] = {}
    for service in graph.services.values():
        for alias in service.aliases:
            colours[service.id, alias] = f"c{len(colours) % COLOURS}"
    return colours


def _dots(box: Box, place: Rectangle, colours: dict[tuple[str, str], str]) -> Iterator[str]:
    y = place.y + BOX_HEAD
    for service in box.services:
        for row, alias in enumerate(service.aliases):
            centre = y + HEAD + ROW * (row + 0.5)
            dot = f'<circle class="dot" cx="{place.right - PADDING:.1f}" cy="{centre:.1f}" r="4"/>'
            yield f'<g class="{colours[service.id, alias]}">{dot}</g>'
        y += card_height(service) + PADDING


def _legend(y: float) -> Iterator[str]:
    """What the two kinds of lines mean."""
    yield f'<path class="line" d="M40 {y:.1f} h34"/>' + text(82, y + 4, "first choice", "quiet")
    yield f'<path class="line fallback" d="M190 {y:.1f} h34"/>' + text(232, y + 4, "fallbacks, in order", "quiet")


# The same in Graphviz' language (DOT), for other tools: a cluster for each host and each container. Names are data:
# each stands in quotes, with backslashes and quotes escaped, so that none of them ends its string, becomes a port or
# HTML, or is read as an escape sequence.

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
        yield _outside_node(outside)
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
    yield from _cluster(f"container {box.name}", label, list(map(_service, box.services)))


def _service(service: Service) -> str:
    label = [f"{service.role} :{service.port}" if service.port else service.role]
    if service.model:
        label.append(service.model)
    return f"{_quoted(service.id)} [{_label(label)}];"


def _outside_node(outside: Outside) -> str:
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
