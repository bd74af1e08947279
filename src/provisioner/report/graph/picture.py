"""A lab's connections as one SVG file: nothing from elsewhere, the same bytes each time, for light and dark pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from provisioner.report.graph.layout import (
    BOX_HEAD,
    FRAME_HEAD,
    FRAME_PADDING,
    HEAD,
    PADDING,
    ROW,
    Arrangement,
    arrange,
    card_height,
    shown,
    text_width,
)
from provisioner.report.graph.routes import Drawing, Point, Rectangle, route
from provisioner.report.graph.topology import LAN, Box, Edge, Graph, Outside, Service

CORNER = 7
ARROW = 8
COLOURS = 6
LEGEND = 56
RIGHT = 40
SMALLEST = 560
_STYLE = """
svg { font-family: ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.page { fill: #ffffff } .frame { fill: #f6f8fa; stroke: #d0d7de } .away { stroke-dasharray: 5 4 }
.box { fill: #ffffff; stroke: #afb8c1 } .card { fill: #f6f8fa; stroke: #d0d7de }
text { fill: #1f2328; font-size: 13px } .title { font-size: 20px; font-weight: 600 } .strong { font-weight: 600 }
.quiet { fill: #59636e; font-size: 12px } .small { font-size: 11px }
.engine { fill: #1a7f37 } .gateway { fill: #8250df } .app { fill: #0969da } .model { fill: #6e7781 }
.upstream { fill: #bf8700 } .lan { fill: #cf222e } .pill { fill: #cf222e } .on { fill: #ffffff; font-weight: 600 }
.line { fill: none; stroke: #6e7781; stroke-width: 1.6 } .head { fill: #6e7781 } .fallback { stroke-dasharray: 6 4 }
.rank { fill: #ffffff; stroke-width: 1.2 }
.c0 .line, .c0 .rank { stroke: #0969da } .c0 .head, .c0 .dot { fill: #0969da }
.c1 .line, .c1 .rank { stroke: #bc4c00 } .c1 .head, .c1 .dot { fill: #bc4c00 }
.c2 .line, .c2 .rank { stroke: #1a7f37 } .c2 .head, .c2 .dot { fill: #1a7f37 }
.c3 .line, .c3 .rank { stroke: #8250df } .c3 .head, .c3 .dot { fill: #8250df }
.c4 .line, .c4 .rank { stroke: #bf3989 } .c4 .head, .c4 .dot { fill: #bf3989 }
.c5 .line, .c5 .rank { stroke: #1b7c83 } .c5 .head, .c5 .dot { fill: #1b7c83 }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117 } .frame { fill: #151b23; stroke: #3d444d } .box { fill: #0d1117; stroke: #656c76 }
.card { fill: #151b23; stroke: #3d444d } text { fill: #f0f6fc } .quiet { fill: #9198a1 } .on { fill: #ffffff }
.line { stroke: #9198a1 } .head { fill: #9198a1 } .rank { fill: #0d1117 }
.c0 .line, .c0 .rank { stroke: #4493f8 } .c0 .head, .c0 .dot { fill: #4493f8 }
.c1 .line, .c1 .rank { stroke: #f0883e } .c1 .head, .c1 .dot { fill: #f0883e }
.c2 .line, .c2 .rank { stroke: #3fb950 } .c2 .head, .c2 .dot { fill: #3fb950 }
.c3 .line, .c3 .rank { stroke: #ab7df8 } .c3 .head, .c3 .dot { fill: #ab7df8 }
.c4 .line, .c4 .rank { stroke: #db61a2 } .c4 .head, .c4 .dot { fill: #db61a2 }
.c5 .line, .c5 .rank { stroke: #39c5cf } .c5 .head, .c5 .dot { fill: #39c5cf }
}
"""


def graph_svg(graph: Graph) -> str:
    """The whole picture, well-formed whatever the names are, its size that of its content."""
    arrangement = arrange(graph)
    drawing = route(arrangement)
    width, height = _size(graph, arrangement, drawing)
    size = f'width="{width:.0f}" height="{height:.0f}"'
    colours = _colours(graph)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
        f"<title>{_escaped(graph.lab)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="page" {size} rx="10"/>',
        _text(40, 40, graph.lab, "title"),
        *_frames(graph, arrangement, drawing),
        *(part for box in graph.boxes for part in _box(box, drawing.places[f"box:{box.name}"])),
        *(part for one in graph.outside for part in _outside(one, drawing.places[one.id])),
        *(_network(drawing.places[LAN]) if LAN in drawing.places else ()),
        *(_line(edge, points, colours) for edge, points in drawing.lines),
        *(dot for box in graph.boxes for dot in _dots(box, drawing.places[f"box:{box.name}"], colours)),
        *_legend(graph, height - LEGEND + 18),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _size(graph: Graph, arrangement: Arrangement, drawing: Drawing) -> tuple[float, float]:
    xs = [one.right for one in drawing.places.values()] + [x for _, points in drawing.lines for x, _ in points]
    titles = [text_width(f"{host.name}  {host.words}") + 100 for host in graph.hosts]
    bottoms = [one.bottom for one in drawing.places.values()] + [bottom for _, bottom in arrangement.bands[:-1]]
    return max(SMALLEST, *titles, *xs) + RIGHT, max(bottoms, default=100) + FRAME_PADDING + LEGEND


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "") -> str:
    classes = f' class="{kind}"' if kind else ""
    anchored = f' text-anchor="{anchor}"' if anchor else ""
    whole = f"<title>{_escaped(text)}</title>" if shown(text) != text else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{classes}{anchored}>{whole}{_escaped(shown(text))}</text>'


def _escaped(text: str) -> str:
    """Text of a file as XML's; what XML cannot hold at all is written out."""
    return escape("".join(one if one.isprintable() else ascii(one)[1:-1] for one in text))


def _rect(place: Rectangle, kind: str, radius: int = 8) -> str:
    return (
        f'<rect class="{kind}" x="{place.x:.1f}" y="{place.y:.1f}" width="{place.width:.1f}" '
        f'height="{place.height:.1f}" rx="{radius}"/>'
    )


def _frames(graph: Graph, arrangement: Arrangement, drawing: Drawing) -> Iterator[str]:
    """A frame for each host, all as wide as the containers of all hosts together, and one for what is elsewhere."""
    inside = [drawing.places[f"box:{box.name}"] for box in graph.boxes]
    left, right = min((one.x for one in inside), default=40.0), max((one.right for one in inside), default=400.0)
    for host, (top, bottom) in zip(graph.hosts, arrangement.bands, strict=False):
        yield _frame(left, right, top, bottom, "frame")
        yield _frame_title(left, top, host.name, host.words)
    away = [drawing.places[one.id] for one in graph.outside if one.kind == "upstream"]
    if away:
        top, bottom = arrangement.bands[-1]
        yield _frame(away[0].x, away[0].right, top, bottom, "frame away")
        yield _frame_title(away[0].x, top, "elsewhere", "")


def _frame(left: float, right: float, top: float, bottom: float, kind: str) -> str:
    y = top - FRAME_HEAD
    edge = FRAME_PADDING
    return _rect(Rectangle(left - edge, y, right - left + 2 * edge, bottom + edge - y), kind, 12)


def _frame_title(left: float, top: float, name: str, words: str) -> str:
    return (
        f'<text x="{left:.1f}" y="{top - 12:.1f}"><tspan class="strong">{_escaped(shown(name))}</tspan>'
        f'<tspan class="quiet" dx="10">{_escaped(shown(words))}</tspan></text>'
    )


def _box(box: Box, place: Rectangle) -> Iterator[str]:
    yield _rect(place, "box")
    yield _text(place.x + PADDING, place.y + 20, box.name, "strong")
    if box.gpu:
        yield _text(place.right - PADDING, place.y + 20, box.gpu, "quiet", "end")
    y = place.y + BOX_HEAD
    for one in box.services:
        yield from _card(one, Rectangle(place.x + PADDING, y, place.width - 2 * PADDING, card_height(one)))
        y += card_height(one) + PADDING


def _card(service: Service, place: Rectangle) -> Iterator[str]:
    yield _rect(place, "card", 6)
    yield _rect(Rectangle(place.x, place.y, 4, place.height), service.stage, 2)
    yield _text(place.x + 14, place.y + 19, service.role, "strong")
    words = service.stage + (f", {service.model}" if service.model else "")
    yield _text(place.x + 14, place.y + 36, words, "quiet")
    right = place.right - 10
    if service.on_lan:
        yield _rect(Rectangle(right - 32, place.y + 7, 32, 16), "pill", 8)
        yield _text(right - 16, place.y + 19, "LAN", "on small", "middle")
        right -= 40
    if service.port:
        yield _text(right, place.y + 19, f":{service.port}", "", "end")
    for row, alias in enumerate(service.aliases):
        yield _text(place.right - 14, place.y + HEAD + ROW * (row + 0.5) + 4, alias, "", "end")


def _outside(one: Outside, place: Rectangle) -> Iterator[str]:
    yield _rect(place, "card", 6)
    yield _rect(Rectangle(place.x, place.y, 4, place.height), one.kind, 2)
    yield _text(place.x + 14, place.y + 19, one.name, "strong")
    yield _text(place.x + 14, place.y + 36, one.words, "quiet")


def _network(place: Rectangle) -> Iterator[str]:
    yield _rect(place, "card", 22)
    yield _text(place.x + place.width / 2, place.y + 19, "LAN", "strong", "middle")
    yield _text(place.x + place.width / 2, place.y + 36, "clients", "quiet", "middle")


def _colours(graph: Graph) -> dict[tuple[str, str], str]:
    """A colour for each alias, so that an eye can follow its lines."""
    named = [(one.id, alias) for one in graph.services.values() for alias in one.aliases]
    return {name: f"c{number % COLOURS}" for number, name in enumerate(named)}


def _line(edge: Edge, points: Sequence[Point], colours: dict[tuple[str, str], str]) -> str:
    (before, _), (x, y) = points[-2:]
    way = 1 if x > before else -1
    end = (x - way * ARROW, y)
    kind = "line fallback" if edge.line == "fallback" else "line"
    parts = [
        f"<title>{_escaped(_line_words(edge))}</title>",
        f'<path class="{kind}" d="{_path([*points[:-1], end])}"/>',
        f'<path class="head" d="M{x:.1f} {y:.1f} l{-way * ARROW} -4.5 v9 z"/>',
    ]
    if edge.line == "fallback":
        parts += [
            f'<circle class="rank" cx="{x - way * 21:.1f}" cy="{y:.1f}" r="7.5"/>',
            _text(x - way * 21, y + 4, str(edge.rank), "small", "middle"),
        ]
    return f'<g class="{colours.get((edge.source, edge.alias), "plain")}">{"".join(parts)}</g>'


def _line_words(edge: Edge) -> str:
    source = f"{edge.source} {edge.alias}".strip()
    return f"{source} → {edge.target.partition(':')[2] or edge.target} ({_WORDS[edge.line]})"


_WORDS = {
    "first": "first choice",
    "fallback": "when those before it fail",
    "serves": "serves",
    "uses": "uses",
    "exposed": "open to the network",
}


def _path(points: Sequence[Point]) -> str:
    """A line through the points, its right angles rounded."""
    parts = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        near, far = _towards(corner, before), _towards(corner, after)
        parts.append(f"L{near[0]:.1f} {near[1]:.1f} Q{corner[0]:.1f} {corner[1]:.1f} {far[0]:.1f} {far[1]:.1f}")
    return " ".join([*parts, f"L{points[-1][0]:.1f} {points[-1][1]:.1f}"])


def _towards(corner: Point, other: Point) -> Point:
    """A little way from the corner towards the other point, at most half of it."""
    dx, dy = other[0] - corner[0], other[1] - corner[1]
    length = abs(dx) + abs(dy)
    share = min(CORNER, length / 2) / length if length else 0
    return corner[0] + dx * share, corner[1] + dy * share


def _dots(box: Box, place: Rectangle, colours: dict[tuple[str, str], str]) -> Iterator[str]:
    y = place.y + BOX_HEAD
    for one in box.services:
        for row, alias in enumerate(one.aliases):
            centre = y + HEAD + ROW * (row + 0.5)
            dot = f'<circle class="dot" cx="{place.right - PADDING:.1f}" cy="{centre:.1f}" r="4"/>'
            yield f'<g class="{colours[one.id, alias]}">{dot}</g>'
        y += card_height(one) + PADDING


def _legend(graph: Graph, y: float) -> Iterator[str]:
    """What the two kinds of lines mean, where there are both."""
    if any(edge.line == "fallback" for edge in graph.edges):
        yield f'<path class="line" d="M40 {y:.1f} h34"/>' + _text(82, y + 4, "first choice", "quiet")
        yield f'<path class="line fallback" d="M190 {y:.1f} h34"/>' + _text(232, y + 4, "fallbacks, in order", "quiet")
