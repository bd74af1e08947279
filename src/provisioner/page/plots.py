"""The section of probes and benchmarks: the latest results of each service, and a plot of those before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from provisioner.measuring.engine import number_text, words_of
from provisioner.measuring.history import Interval, Result, Series, differences
from provisioner.measuring.probe import Kept
from provisioner.measuring.probe_picture import memory_of, tries_svg
from provisioner.page.content import LabContent
from provisioner.report.html import Markup, moment, opened, quiet, state, table, tag, wide
from provisioner.report.style import count_text, duration_text
from provisioner.report.svg import ticks, without_style
from provisioner.values.address import Address

# The plot of one figure over time.

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


# The section: findings of probes and benchmarks on each service, with everything that was found before.

MIB = 2**20
MOST_POINTS = 24
"""So many of the newest measurements stand in a plot; the table below has all of them."""
NO_CARD = "not checked on a card"

Group = tuple[str, str]
"""A kind of benchmark, and its options in words."""


def measurements(content: LabContent) -> Iterator[Markup]:
    """A panel for each service of which something was measured, and the names of the others."""
    measured = dict.fromkeys((*content.tried, *content.results))
    for address in measured:
        parts = [*_probes(address, content.tried.get(address, ()))]
        parts += _benchmarks(content.results.get(address, ()))
        yield tag("article", tag("h3", address), *parts, class_="panel")
    others = [address for address in content.graph.services if address not in measured]
    if others:
        yield tag("p", state("dim", "Never probed, and no benchmark is kept"), f": {', '.join(others)}")
    if not measured and not others:
        yield quiet("There is no service of which anything could be measured.")


def _probes(address: Address, tried: Sequence[Kept]) -> Iterator[Markup]:
    if not tried:
        return
    engines: dict[str, list[Kept]] = {}
    for one in tried:
        engines.setdefault(one.digest, []).append(one)
    newest = engines.pop(tried[-1].digest)
    by_context = {one.tried.context: one for one in newest}
    tries = [by_context[context] for context in sorted(by_context)]
    longest = _longest(newest)
    yield tag("h4", "Contexts that were tried")
    answered = f"{longest:,} tokens at most were answered" if longest else "None was answered"
    seen_on = "" if any(one.tried.card >= 0 for one in newest) else f"; {NO_CARD}"
    yield tag("p", f"{answered}{seen_on}, tried last ", moment(newest[-1].at))
    picture = without_style(tries_svg(address, [one.tried for one in tries], longest))
    label = f"Picture of the contexts of {address} that were tried"
    yield wide(label, Markup(picture), "fits")
    yield opened("All of these tries", _tries_table(address, tries))
    if engines:
        yield _former_engines(address, engines.values())


def _longest(tries: Iterable[Kept]) -> int:
    return max((one.tried.context for one in tries if one.tried.is_answered), default=0)


def _tries_table(address: Address, tries: Sequence[Kept]) -> Markup:
    rows = []
    for kept in tries:
        one = kept.tried
        size = f"{memory_of(one) // MIB:,} MiB" if one.is_answered and memory_of(one) else "not known"
        outcome = f"{one.outcome} {one.words}".strip()
        mood = "good" if one.is_answered else "mind"
        rows.append((f"{one.context:,}", state(mood, outcome), size, duration_text(one.took_s), moment(kept.at)))
    return table(f"Tries of {address}", ("tokens", "outcome", "memory", "took", "tried at"), rows)


def _former_engines(address: Address, engines: Iterable[Sequence[Kept]]) -> Markup:
    """What was found of the same service with other options, another model, or on another card."""
    rows = []
    for tries in engines:
        longest = _longest(tries)
        found = f"{longest:,}" if longest else "none"
        rows.append((moment(tries[-1].at), found, count_text(len(tries), "try").replace("trys", "tries")))
    head = ("tried last", "longest that answered", "tries")
    return opened("Before, as another engine", table(f"Former tries of {address}", head, rows))


def _benchmarks(results: Sequence[Result]) -> Iterator[Markup]:
    groups: dict[Group, list[Result]] = {}
    for one in results:
        groups.setdefault((one.kind, words_of(one.setting.options)), []).append(one)
    for (kind, options), own in groups.items():
        yield tag("h4", f"bench --kind {kind}", f", {options}" if options else "")
        yield quiet(_on_what(own[-1]))
        figures = [_figure(series, own) for series in own[-1].series]
        yield tag("div", *figures, class_="plots")
        yield opened("All of these measurements", _results_table(kind, own))


def _on_what(result: Result) -> str:
    setting = result.setting
    card = f"{setting.card} with driver {setting.driver}" if setting.card else NO_CARD
    where = ", ".join(word for word in (setting.host, setting.processor, card) if word)
    return f"Measured last on {where}."


def _figure(newest: Series, results: Sequence[Result]) -> Markup:
    """The history of one figure, and its newest value in words."""
    points: list[Point] = []
    before: Result | None = None
    for result in results[-MOST_POINTS:]:
        for series in result.series:
            if series.name == newest.name:
                points.append(_measured_point(series, result, before))
                before = result
    last = points[-1]
    value = f"{number_text(last.middle)} {newest.unit}"
    between = f", with 95 % certainty {number_text(last.low)} to {number_text(last.high)}"
    caption = [tag("strong", newest.name, ": ", value), f"{between}, {count_text(len(newest.trials), 'trial')}, "]
    return tag("figure", history_plot(newest.name, newest.unit, points), tag("figcaption", *caption, moment(last.at)))


def _measured_point(series: Series, result: Result, before: Result | None) -> Point:
    where = _where(series)
    is_like = before is None or not list(differences(before.setting, result.setting))
    return Point(result.at, series.middle, where.low, where.high, is_like)


@lru_cache(maxsize=4096)
def _where(series: Series) -> Interval:
    """Where its median lies, which takes a moment to find out, and is asked for twice."""
    return series.interval


def _results_table(kind: str, results: Sequence[Result]) -> Markup:
    """Every figure of every run, the newest first, and what else had changed."""
    rows = []
    before: Result | None = None
    for result in results:
        unlike = "; ".join(differences(before.setting, result.setting)) if before else ""
        for series in result.series:
            where = _where(series)
            value = f"{number_text(series.middle)} {series.unit}"
            interval = f"{number_text(where.low)} to {number_text(where.high)}"
            trials = str(len(series.trials))
            disturbed = str(series.disturbed)
            rows.append((moment(result.at), series.name, value, interval, trials, disturbed, unlike or "nothing"))
        before = result
    head = ("measured at", "figure", "median", "95 % of it", "trials", "disturbed", "other than before")
    return table(f"Measurements of {kind}", head, rows[::-1])
