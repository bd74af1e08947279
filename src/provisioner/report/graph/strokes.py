"""The lines of a picture: paths with round corners, arrow heads, the numbers of fallbacks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from provisioner.report.graph.elements import escaped, text
from provisioner.report.graph.routes import Drawing, Point
from provisioner.report.graph.topology import Edge

CORNER = 7
ARROW = 8
NUMBER_AT = 19
NUMBER_STEP = 17


def strokes(drawing: Drawing, colours: Mapping[tuple[str, str], str]) -> Iterator[str]:
    """All lines; the numbers of those that meet side by side stand in two columns, not one on the other."""
    met: dict[str, list[float]] = defaultdict(list)
    for edge, points in drawing.lines:
        met[edge.target].append(points[-1][1])
    for edge, points in drawing.lines:
        odd = sorted(met[edge.target]).index(points[-1][1]) % 2
        yield _line(edge, points, colours.get((edge.source, edge.alias), "plain"), NUMBER_AT + odd * NUMBER_STEP)


def _line(edge: Edge, points: Sequence[Point], colour: str, number_at: int) -> str:
    (before, _), (x, y) = points[-2:]
    way = 1 if x > before else -1
    end = (x - way * ARROW, y)
    kind = "line fallback" if edge.line == "fallback" else "line"
    parts = [
        f"<title>{escaped(_line_words(edge))}</title>",
        f'<path class="{kind}" d="{_path([*points[:-1], end])}"/>',
        f'<path class="head" d="M{x:.1f} {y:.1f} l{-way * ARROW} -4.5 v9 z"/>',
    ]
    if edge.line == "fallback":
        parts += [
            f'<circle class="rank" cx="{x - way * number_at:.1f}" cy="{y:.1f}" r="7.5"/>',
            text(x - way * number_at, y + 4, str(edge.rank), "small", "middle"),
        ]
    return f'<g class="{colour}">{"".join(parts)}</g>'


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
