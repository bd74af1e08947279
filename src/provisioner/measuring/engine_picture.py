"""The picture of measurements of an engine or its clients, one SVG file: a bar for each setting, with its median."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from provisioner.measuring.engine import number_text, unlike_text
from provisioner.measuring.history import Result, Series
from provisioner.report.svg import STYLE, Rectangle, escaped, rectangle, text, ticks

WIDTH = 960
LEFT, RIGHT = 300, 690
"""Where nothing is, and where the fastest trial of a figure is."""
EDGE = 40
ROW, BAR = 26, 12
TOP = 100
HEAD, AXIS, GAP = 30, 34, 22
RATES, TIMES = "Tokens in a second", "What clients see"
LONGEST_LABEL, LONGEST_LINE = 38, 120
MINUTES = len("2026-11-28T01:00")
MORE = """
.interval { stroke: #1f2328; stroke-width: 2 } .trial { fill: #1f2328; fill-opacity: 0.25 }
@media (prefers-color-scheme: dark) { .interval { stroke: #e6edf3 } .trial { fill: #e6edf3; fill-opacity: 0.3 } }
"""

Row = tuple[str, Series]


def engine_bench_svg(results: Sequence[Result]) -> str:
    """The whole picture, well-formed whatever the names are; the same bytes for the same figures."""
    groups = _by_figure(results)
    parts: list[str] = []
    y = float(TOP)
    for name, rows in groups.items():
        parts += _group(name, rows, y)
        y += HEAD + ROW * len(rows) + AXIS + GAP
    title = TIMES if any(series.is_time for result in results for series in result.series) else RATES
    size = f'width="{WIDTH}" height="{y:.0f}"'
    setting = results[0].setting
    where = ", ".join(word for word in (results[0].service, setting.host, setting.card or setting.processor) if word)
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {y:.0f}" role="img">',
        f"<title>{title}</title>",
        f"<style>{STYLE}{MORE}</style>",
        f'<rect class="page" {size} rx="10"/>',
        text(EDGE, 44, title, "title"),
        f'<text x="{EDGE}" y="70" class="quiet">{escaped(where[:LONGEST_LINE])}</text>',
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def _by_figure(results: Sequence[Result]) -> dict[str, list[Row]]:
    """The rows of each figure, in the order in which they were measured."""
    groups: dict[str, list[Row]] = {}
    for result in results:
        for series in result.series:
            groups.setdefault(series.name, []).append((_label(result, results), series))
    return groups


def _label(result: Result, results: Sequence[Result]) -> str:
    """What tells a result from the others: its options, and when it was measured where that was at several times."""
    moments = {one.at for one in results}
    when = f"{result.at[:MINUTES]} " if len(moments) > 1 else ""
    return f"{when}{unlike_text(result, results)}".strip()[:LONGEST_LABEL] or "as it is served"


def _group(name: str, rows: Sequence[Row], top: float) -> Iterator[str]:
    """All settings of one figure, below each other, and the scale below them."""
    most = max(max(series.values) for _, series in rows)
    below = top + HEAD + ROW * len(rows)
    yield text(EDGE, top + 14, name, "strong")
    for value in ticks(most):
        x = _place_of(value, most)
        yield f'<path class="line" stroke-opacity="0.3" d="M{x:.1f} {top + HEAD - 6:.1f} V{below:.1f}"/>'
        yield text(x, below + 18, f"{value:,.10g}", "quiet", "middle")
    for number, (label, series) in enumerate(rows):
        middle = top + HEAD + ROW * (number + 0.5)
        yield text(LEFT - 14, middle + 4, label, "quiet", "end")
        yield from _bar(series, middle, most)
        yield text(RIGHT + 14, middle + 4, _words(series), "quiet")


def _bar(series: Series, middle: float, most: float) -> Iterator[str]:
    """The median as a bar, its interval as a line, and a dot for each trial."""
    wide = _place_of(series.middle, most) - LEFT
    yield f'<g class="c0">{rectangle(Rectangle(LEFT, middle - BAR / 2, wide, BAR), "head", 2)}</g>'
    for value in series.values:
        yield f'<circle class="trial" cx="{_place_of(value, most):.1f}" cy="{middle:.1f}" r="2.5"/>'
    low, high = (_place_of(value, most) for value in (series.interval.low, series.interval.high))
    yield f'<path class="interval" d="M{low:.1f} {middle:.1f} H{high:.1f}"/>'


def _words(series: Series) -> str:
    disturbed = f", {series.disturbed} of {len(series.trials)} disturbed" if series.disturbed else ""
    return f"{number_text(series.middle)} {series.unit}{disturbed}"


def _place_of(value: float, most: float) -> float:
    return LEFT + (RIGHT - LEFT) * value / most
