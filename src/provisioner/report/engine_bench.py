"""What an engine computes in a second, results of before, and whether something has become slower."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from provisioner.measuring.engine_bench import Subject, words_of
from provisioner.measuring.gate import Compared
from provisioner.measuring.history import SETTING, Result, differences
from provisioner.measuring.series import Series
from provisioner.report.style import PLAIN, Style, count_text, duration_text, safe_line, table

HEAD = ("FIGURE", "MEDIAN", "95 % OF IT", "TRIALS", "WAITED", "WITH")
COMPARED = ("FIGURE", "BEFORE", "NOW", "CHANGE", "99 % OF IT", "")
KEPT = ("NUMBER", "MEASURED AT", "KIND", "FIGURES", "WITH")
WHOLE = "whole answer"
SHORT = 12
"""Characters of a digest that tell it apart."""


def foretold_text(subject: Subject, arranged: int, trials: int | None, budget_s: float) -> str:
    """How long it takes, and what becomes of requests meanwhile."""
    service = subject.service
    each = count_text(trials, "trial") if trials else f"trials for about {duration_text(budget_s)}"
    settings = f" with each of {count_text(arranged, 'setting')}" if arranged > 1 else ""
    waits = f"requests wait for up to {duration_text(service.queue_s)}, and are answered between two trials"
    return (
        f"{service.address} is stopped, and llama-bench makes {each}{settings}; "
        f"{waits if service.queue_s else 'requests are refused meanwhile'}."
    )


def results_text(results: Sequence[Result], style: Style = PLAIN) -> str:
    """On what it was measured, each figure with its interval, and what was disturbed."""
    rows = [row for one in results for row in _rows(one, unlike_text(one, results))]
    lines = [_setting_line(results[0]), "", table(HEAD, rows, style)]
    if any(one.cold for one in results):
        lines.append("")
    lines += _first_lines(results)
    disturbed = sum(series.disturbed for one in results for series in one.series)
    if disturbed:
        trials = sum(len(series.trials) for one in results for series in one.series)
        lines += ["", f"Other work was in the way of {disturbed} of {count_text(trials, 'trial')}: it waited longer."]
    return "\n".join(lines)


def _first_lines(results: Sequence[Result]) -> Iterator[str]:
    """What the first time took, where that is told, and which answers were no stream."""
    for one in results:
        if one.cold:
            told = ", ".join(f"{safe_line(name)} {number_text(value)} s" for name, value in one.cold.items())
            yield f"The first time{_behind(one)}: {told}."
        if any(series.name.startswith(WHOLE) for series in one.series):
            yield f"Not streaming{_behind(one)}: answers come in one piece."


def _behind(result: Result) -> str:
    depth = result.setting.options.get("d", "0")
    return f" at depth {safe_line(depth)}" if depth != "0" else ""


def results_content(results: Sequence[Result]) -> list[dict[str, Any]]:
    """All of it as values."""
    return [
        {
            "at": one.at,
            "service": one.service,
            "setting": {name: getattr(one.setting, name) for name in SETTING},
            "options": dict(one.setting.options),
            "figures": [_figure(series) for series in one.series],
            "cold": dict(one.cold),
        }
        for one in results
    ]


def history_text(results: Sequence[Result], style: Style = PLAIN) -> str:
    """Everything that was kept of a service, the oldest first, with the number by which it is named."""
    rows = [
        (
            str(number),
            safe_line(one.at),
            safe_line(one.kind),
            ", ".join(f"{safe_line(series.name)} {number_text(series.middle)}" for series in one.series),
            safe_line(words_of(one.setting.options)),
        )
        for number, one in enumerate(results, 1)
    ]
    return table(KEPT, rows, style)


def compared_text(
    before: Result, now: Result, found: Sequence[Compared], threshold: float, style: Style = PLAIN
) -> str:
    """What differs between two results, each figure of both, and what that means."""
    named = [("kind", before.kind, now.kind), ("service", before.service, now.service)]
    besides = [f"{name}: {one} and {other}" for name, one, other in named if one != other]
    unlike = [safe_line(line) for line in (*besides, *differences(before.setting, now.setting))]
    rows = [
        (
            safe_line(one.name),
            number_text(one.before.middle),
            number_text(one.now.middle),
            f"{one.times - 1:+.1%}",
            f"{one.where.low - 1:+.1%} to {one.where.high - 1:+.1%}",
            _verdict(one, threshold),
        )
        for one in found
    ]
    head = f"{safe_line(before.at)} and {safe_line(now.at)}"
    said = [f"Not the same: {line}" for line in unlike] or ["All that is known of both is the same."]
    return "\n".join([head, *said, "", table(COMPARED, rows, style) if rows else "They have no figure in common."])


def compared_content(found: Sequence[Compared], threshold: float) -> list[dict[str, Any]]:
    """All of it as values: ``times`` as much as before."""
    return [
        {
            "name": one.name,
            "before": one.before.middle,
            "now": one.now.middle,
            "times": one.times,
            "low": one.where.low,
            "high": one.where.high,
            "worse": one.is_worse(threshold),
        }
        for one in found
    ]


def _verdict(one: Compared, threshold: float) -> str:
    if one.is_worse(threshold):
        return "slower"
    if one.is_noise:
        return f"no more than noise; less than {one.unseen:.0%} slower would not be seen"
    return "slower, within the threshold" if one.is_slower else "faster"


def _rows(result: Result, told: str) -> Iterator[tuple[str, ...]]:
    for series in result.series:
        where = series.interval
        waited = [trial.waited for trial in series.trials if trial.waited >= 0]
        yield (
            safe_line(series.name),
            f"{number_text(series.middle)} {series.unit}",
            f"{number_text(where.low)} to {number_text(where.high)}",
            str(len(series.trials)),
            f"{sum(waited) / len(waited):.0%}" if waited else "not told",
            safe_line(told),
        )


def unlike_text(result: Result, results: Sequence[Result]) -> str:
    """The options by which a result differs from others of the same run; empty where none does."""
    options = result.setting.options
    return words_of(
        {
            name: value
            for name, value in options.items()
            if any(one.setting.options.get(name) != value for one in results)
        }
    )


def _setting_line(result: Result) -> str:
    setting = result.setting
    card = f", {setting.card} with driver {setting.driver}" if setting.card else ""
    build = f", build {setting.build[:SHORT]}" if setting.build else ""
    model = f", model {setting.model[:SHORT]}" if setting.model else ""
    processor = f": {setting.processor}" if setting.processor else ""
    return safe_line(f"{result.service} on {setting.host}{processor}{card}{build}{model}")


def _figure(series: Series) -> dict[str, Any]:
    return {
        "name": series.name,
        "unit": series.unit,
        "median": series.middle,
        "low": series.interval.low,
        "high": series.interval.high,
        "trials": [[trial.value, trial.waited] for trial in series.trials],
        "disturbed": series.disturbed,
    }


def number_text(value: float) -> str:
    """Three figures, such as 1,230 or 4.56."""
    if value >= 1000:  # noqa: PLR2004  # then a point says nothing more
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 100 else f"{value:.2f}"  # noqa: PLR2004
