"""The picture of when audio arrived, one SVG file: a row for each answer, those of a text on one scale of time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from provisioner.measuring.speech import Bench, Run, Series, verdict
from provisioner.report.svg import STYLE, Rectangle, escaped, rectangle, text, ticks

WIDTH = 960
LEFT, RIGHT = 300, 740
"""Where time begins, and where the longest answer of a text ends."""
EDGE = 40
ROW, BAR = 26, 3
TOP = 76
HEAD, AXIS, GAP = 34, 34, 22
LINE = 20
COLOURS = 6
TITLE = "When audio arrived"

Row = tuple[Bench, Series]


def bench_svg(benches: Sequence[Bench]) -> str:
    """The whole picture, well-formed whatever the names are; the same bytes for the same figures."""
    colours = {bench.container: f"c{number % COLOURS}" for number, bench in enumerate(benches)}
    parts: list[str] = []
    y = float(TOP)
    for rows in _by_text(benches):
        parts += _group(rows, y, colours)
        y += _height(rows) + AXIS + GAP
    for words in verdict(benches):
        parts.append(f'<text x="{EDGE}" y="{y:.1f}">{escaped(words)}</text>')
        y += LINE
    size = f'width="{WIDTH}" height="{y + LINE:.0f}"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {y + LINE:.0f}" role="img">',
        f"<title>{TITLE}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" {size} rx="10"/>',
        text(EDGE, 44, TITLE, "title"),
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def _by_text(benches: Sequence[Bench]) -> Iterable[list[Row]]:
    """The rows of each text, in the order in which the texts were read first."""
    groups: dict[str, list[Row]] = {}
    for bench in benches:
        for series in bench.series:
            groups.setdefault(series.ask.text, []).append((bench, series))
    return groups.values()


def place_of(seconds: float, longest: float) -> float:
    """Where a moment stands from left to right."""
    return LEFT + (RIGHT - LEFT) * seconds / longest


def _height(rows: Sequence[Row]) -> float:
    """Of a text's name, a line for each container and one for each answer."""
    return HEAD + ROW * (len({bench.container for bench, _ in rows}) + len(rows))


def _group(rows: Sequence[Row], top: float, colours: dict[str, str]) -> Iterator[str]:
    """All answers to one text, below each other, and the time below them."""
    longest = max(series.typical.last_s for _, series in rows)
    ask = rows[0][1].ask
    yield text(EDGE, top + 14, f"{ask.text} text, {len(ask.words)} characters", "strong")
    below = top + _height(rows)
    for moment in ticks(longest):
        x = place_of(moment, longest)
        yield f'<path class="line" stroke-opacity="0.3" d="M{x:.1f} {top + HEAD:.1f} V{below:.1f}"/>'
        yield text(x, below + 18, f"{moment:g} s", "quiet", "middle")
    middle, before = top + HEAD - ROW / 2, ""
    for bench, series in rows:
        if bench.container != before:
            middle, before = middle + ROW, bench.container
            yield text(EDGE, middle + 4, f"{bench.container}, {bench.device}", "strong")
        middle += ROW
        yield f'<g class="{colours[bench.container]}">'
        yield from _row(series, middle, longest)
        yield "</g>"


def _row(series: Series, middle: float, longest: float) -> Iterator[str]:
    """The format and the voice, the wait, the audio with a dot for each piece, and both times."""
    yield text(LEFT - 14, middle + 4, f"{series.ask.format}, {series.ask.voice}", "quiet", "end")
    yield from _arrivals(series.typical, middle, longest)
    times = f"{series.first_s:.2f} of {series.total_s:.2f} s, {series.share:.2f}"
    yield text(RIGHT + 14, middle + 4, times, "quiet")


def _arrivals(run: Run, middle: float, longest: float) -> Iterator[str]:
    first, last = place_of(run.first_s, longest), place_of(run.last_s, longest)
    yield f'<path class="line fallback" d="M{LEFT} {middle:.1f} H{first:.1f}"/>'
    yield rectangle(Rectangle(first, middle - BAR / 2, last - first, BAR), "head", 2)
    for x in sorted({round(place_of(at, longest)) for at, _ in run.chunks}):
        yield f'<circle class="dot" cx="{x}" cy="{middle:.1f}" r="4"/>'
