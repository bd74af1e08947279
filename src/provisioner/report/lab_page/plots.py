"""One figure of a benchmark over time: its medians with their intervals, the oldest on the left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from provisioner.report.axes import ticks
from provisioner.report.elements import Markup, tag
from provisioner.report.engine_bench import number_text

WIDTH, HEIGHT = 480, 190
LEFT, RIGHT, TOP, BOTTOM = 62, 462, 12, 152
DATE = len("2026-11-28")


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement: when (ISO 8601), the median and where it lies; ``is_like``: all else was as the time before."""

    at: str
    middle: float
    low: float
    high: float
    is_like: bool


def history_plot(name: str, unit: str, points: Sequence[Point]) -> Markup:
    """The medians from left to right, evenly spaced; a ring where something else than the time had changed."""
    most = max(point.high for point in points) * 1.08 or 1.0
    places = [_x(number, len(points)) for number in range(len(points))]
    words = f"{name}: {_in_words(points, unit)}"
    parts = [*_grid(most), *_times(points, places)]
    if len(points) > 1:
        way = " ".join(f"{x:.1f},{_y(one.middle, most):.1f}" for x, one in zip(places, points, strict=True))
        parts.append(tag("polyline", points=way, class_="way"))
    for x, point in zip(places, points, strict=True):
        parts += _point(x, point, most, unit)
    title = tag("title", words)
    return tag("svg", title, *parts, class_="plot", viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=words)


def _in_words(points: Sequence[Point], unit: str) -> str:
    last = points[-1]
    if len(points) == 1:
        return f"{number_text(last.middle)} {unit}, measured once"
    first = points[0]
    return f"from {number_text(first.middle)} to {number_text(last.middle)} {unit} in {len(points)} measurements"


def _x(number: int, count: int) -> float:
    inner = RIGHT - LEFT - 40
    return (LEFT + RIGHT) / 2 if count == 1 else LEFT + 20 + inner * number / (count - 1)


def _y(value: float, most: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * value / most


def _grid(most: float) -> Iterator[Markup]:
    for value in ticks(most):
        y = f"{_y(value, most):.1f}"
        yield tag("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, class_="grid")
        yield tag("text", f"{value:,.10g}", x=LEFT - 8, y=f"{_y(value, most) + 4:.1f}", text_anchor="end")


def _times(points: Sequence[Point], places: Sequence[float]) -> Iterator[Markup]:
    """The day of the first and of the last measurement."""
    ends = [0] if len(points) == 1 else [0, len(points) - 1]
    for number in ends:
        day = points[number].at[:DATE]
        yield tag("text", day, x=f"{places[number]:.1f}", y=BOTTOM + 22, text_anchor=_anchor(number, len(points)))


def _anchor(number: int, count: int) -> str:
    if count == 1:
        return "middle"
    return "start" if number == 0 else "end"


def _point(x: float, point: Point, most: float, unit: str) -> Iterator[Markup]:
    low, high = _y(point.low, most), _y(point.high, most)
    yield tag("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=f"{low:.1f}", y2=f"{high:.1f}", class_="between")
    words = f"{point.at}: {number_text(point.middle)} {unit}"
    kind = "point" if point.is_like else "other"
    middle = f"{_y(point.middle, most):.1f}"
    yield tag("circle", tag("title", words), cx=f"{x:.1f}", cy=middle, r=5, class_=kind)
