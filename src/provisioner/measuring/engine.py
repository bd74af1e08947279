"""``bench --kind engine``: what the program that serves computes in a second, by llama-bench; as text and picture."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import product
from time import monotonic, sleep
from typing import Any

from provisioner.inside import engine_bench
from provisioner.inside.answers import bench_answer, served_answer
from provisioner.inside.trial_unit import ANSWERED, OUTCOMES
from provisioner.lab.opening import Lab
from provisioner.measuring.history import (
    SETTING,
    SPREAD_S,
    Compared,
    Result,
    Series,
    Setting,
    Trial,
    differences,
    file_of,
    keep,
    trials_within,
)
from provisioner.measuring.pause import (
    SPARE_S,
    WITHOUT,
    Engine,
    asked_there,
    check_alone,
    check_queue,
    engine_named,
    look_at,
    pause,
    say,
    serve_who_waits,
    serving_again,
)
from provisioner.reconcile.effects import Effects
from provisioner.report.style import PLAIN, Style, count_text, duration_text, safe_line, table
from provisioner.report.svg import STYLE, Rectangle, escaped, rectangle, text, ticks
from provisioner.services import knowledge_of
from provisioner.services.base import EngineBench
from provisioner.values.errors import InputError, PreflightError, ProviderError, VerificationError
from provisioner.values.plain_data import json_value

# The words of llama-bench, by which it is asked what an engine computes, and what its lines say.
#
# It is started with the words of the engine's own command that it knows as well, so that it measures what serves: the
# words that say how many tokens, and by whom it is asked, are the server's alone.

WORDS: Mapping[str, str] = {
    "--model": "-m",
    "--batch-size": "-b",
    "--ubatch-size": "-ub",
    "--cache-type-k": "-ctk",
    "--cache-type-v": "-ctv",
    "--flash-attn": "-fa",
    "--gpu-layers": "-ngl",
    "--n-cpu-moe": "-ncmoe",
    "--load-mode": "-lm",
    "--device": "-dev",
    "--threads": "-t",
}
"""A word of llama-server that is followed by a value, and the one of llama-bench for the same."""
FLAGS: Mapping[str, tuple[str, str]] = {"--no-kv-offload": ("-nkvo", "1"), "--cpu-moe": ("-ncmoe", "999")}
"""Words of llama-server that stand alone; 999: more layers than any model has."""
EVERY_LAYER = "-1"
"""What llama-bench takes where llama-server is told ``auto`` or ``all``."""
SWEPT: Mapping[str, str] = {
    "batch": "-b",
    "ubatch": "-ub",
    "threads": "-t",
    "cache_k": "-ctk",
    "cache_v": "-ctv",
    "gpu_layers": "-ngl",
    "cpu_moe": "-ncmoe",
    "depth": "-d",
}
"""What may be swept, and its word."""
PROGRAM = "llama-bench"
UNCOUNTED = ("-m", "-r", "-o")
"""Words that decide about no figure: where the model lies, how often, and how it is told."""


class UnknownLineError(Exception):
    """A line is none that llama-bench writes."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What one line says: of reading a prompt or of writing, of so many tokens behind so many others."""

    is_prompt: bool
    tokens: int
    depth: int
    per_s: float

    @property
    def name(self) -> str:
        """As llama-bench's own table has it, such as ``pp512 @ d4096``."""
        behind = f" @ d{self.depth}" if self.depth else ""
        return f"{'pp' if self.is_prompt else 'tg'}{self.tokens}{behind}"


def command_of(served: Sequence[str], threads: int, tokens: tuple[int, int], changed: Mapping[str, str]) -> list[str]:
    """The command by which an engine is measured that is served by another one.

    ``served``: the command of llama-server; ``threads``: with how many where that does not say it; ``tokens``: of a
    prompt and of what is written; ``changed``: words of ``SWEPT`` with other values than it is served with. One trial
    and one before it that does not count.
    """
    program, *rest = served
    told = {"-t": str(threads)} | dict(_told(rest)) | {SWEPT[name]: value for name, value in changed.items()}
    read, written = tokens
    asked = {"-p": str(read), "-n": str(written), "-r": "1", "-o": "jsonl"}
    words = [word for pair in {**told, **asked}.items() for word in pair]
    return [f"{program.rpartition('/')[0]}/{PROGRAM}", *words]


def options_of(command: Sequence[str]) -> dict[str, str]:
    """What decides about its figures besides the model, by its own words without their dashes."""
    words = dict(zip(command[1::2], command[2::2], strict=True))
    return {word.lstrip("-"): value for word, value in words.items() if word not in UNCOUNTED}


def sweeps(values: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """Each combination of what is swept; one of nothing where nothing is."""
    for combination in product(*values.values()):
        yield dict(zip(values, combination, strict=True))


def figures(lines: Iterable[Any]) -> Iterator[Figure]:
    """What llama-bench has said, a line of JSON each; raises ``UnknownLineError`` where it says something else."""
    for line in lines:
        try:
            read, written, depth = (int(line[name]) for name in ("n_prompt", "n_gen", "n_depth"))
            (per_s,) = map(float, line["samples_ts"])
        except (KeyError, TypeError, ValueError) as error:
            raise UnknownLineError(f"llama-bench says no figure: {error!r}") from error
        if not (read > 0) ^ (written > 0) or not 0 < per_s < float("inf"):
            raise UnknownLineError(f"llama-bench measured nothing: {read} and {written} tokens, {per_s} a second")
        yield Figure(read > 0, read or written, depth, per_s)


def _told(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What the server is told that llama-bench knows; of words that are said twice the last counts, as there."""
    for number, word in enumerate(words):
        if word in FLAGS:
            yield FLAGS[word]
        elif word in WORDS and number + 1 < len(words):
            value = words[number + 1]
            is_layers = word == "--gpu-layers" and not value.isdecimal()
            yield WORDS[word], EVERY_LAYER if is_layers else value


# The engine that is measured, without its server: what its container is asked, and what comes of it.

KIND = "engine"
UNIT = "tokens/s"
JSON = "{"
"""With what lines of llama-bench begin that say figures."""
BENCH = "bench"
"""What a container is asked to do, beside what ``probe`` and the agent ask."""


@dataclass(frozen=True, slots=True)
class Served:
    """With which command an engine is served, and on what."""

    words: tuple[str, ...]
    threads: int
    processor: str
    card: str
    driver: str
    build: str
    model: str
    free: int = 0
    """Bytes of its container's disk that nobody uses."""


@dataclass(frozen=True, slots=True)
class Subject(Engine):
    """An engine that is measured, and how it is served.

    ``start_s``: how long the slowest of its last starts took, 0 where none was measured.
    """

    bench: EngineBench
    served: Served
    start_s: float = 0.0


@dataclass(slots=True)
class Arrangement:
    """One command that is measured, and the trials of each of its figures so far."""

    command: tuple[str, ...]
    trials: dict[str, list[Trial]]

    def add(self, lines: Sequence[str], waited: float) -> None:
        """Add what one start of llama-bench has written.

        Raises ``UnknownLineError`` where that are not its figures, the same ones each time.
        """
        try:
            said = [json_value(line) for line in lines]
        except ValueError as error:
            raise UnknownLineError(f"llama-bench wrote no JSON: {error}") from error
        found = {figure.name: figure for figure in figures(said)}
        if not found or len(found) != len(lines) or (self.trials and found.keys() != self.trials.keys()):
            raise UnknownLineError(f"llama-bench told {', '.join(found) or 'no figure'} in {len(lines)} lines")
        for figure in found.values():
            self.trials.setdefault(figure.name, []).append(Trial(figure.per_s, waited))

    def result(self, subject: Subject, at: str) -> Result:
        """What was measured."""
        series = tuple(Series(name, UNIT, tuple(trials)) for name, trials in self.trials.items())
        return Result(at, KIND, str(subject.service.address), setting_of(subject, self.command), series)


def arrangements(
    subject: Subject, tokens: tuple[int, int], swept: Sequence[Mapping[str, str]]
) -> tuple[Arrangement, ...]:
    """Each command that is measured: one for each combination of what is swept."""
    served = subject.served
    commands = (command_of(served.words, served.threads, tokens, changed) for changed in swept)
    return tuple(Arrangement(tuple(command), {}) for command in commands)


def setting_of(subject: Subject, command: Sequence[str]) -> Setting:
    """On what that is measured, and with which options."""
    served = subject.served
    return Setting(
        host=subject.instance.host,
        processor=f"{served.processor}, {served.threads} of them",
        card=served.card,
        driver=served.driver,
        build=served.build,
        model=served.model,
        options=options_of(command),
    )


def question(subject: Engine, bench: EngineBench, command: Sequence[str], within_s: float) -> dict[str, Any]:
    """What the container is asked; with an empty command how its engine is served."""
    return {
        "do": BENCH,
        "unit": subject.unit,
        "program": bench.serves,
        "command": list(command),
        "without": list(WITHOUT),
        "no_room": list(bench.no_room),
        "within_s": within_s,
        "begins": JSON,
        "text": "",
        "most_bytes": 0,
    }


def words_of(options: Mapping[str, str]) -> str:
    """Options in one line, such as ``b=2048 t=4``."""
    return " ".join(f"{name}={json.dumps(value) if ' ' in value else value}" for name, value in options.items())


# The measurement: in turns, with the engine stopped for each and serving between them.

VERB = "bench"
TRIAL_S = 1800.0
"""So long one start of llama-bench may take before it hangs."""
LONGEST_TRIAL_S = TRIAL_S + 2 * SPARE_S


def subject_of(lab: Lab, effects: Effects, name: str) -> Subject:
    """The engine of that name, CONTAINER or CONTAINER/SERVICE; raises ``InputError`` where it cannot be measured."""
    service = engine_named(lab.resolved, name, VERB)
    check_alone(service, VERB)
    bench = knowledge_of(service.role).engine_bench(service)
    if bench is None:
        raise InputError(
            f"Unable to measure {service.address}: llama-bench knows nothing of what it computes with",
            resolution="Name a llama.cpp with one model.",
        )
    engine, seen = look_at(lab, effects, service, VERB)
    served = served_there(engine, bench, effects)
    if not served.words:
        raise PreflightError(
            f"Unable to measure {service.address}: its unit does not start {bench.serves}",
            resolution=f"Run: provision up {service.container}",
        )
    start_s = seen.inside.starts.get(service.address, 0.0)
    return Subject(service=service, instance=engine.instance, bench=bench, served=served, start_s=start_s)


def served_there(engine: Engine, bench: EngineBench, effects: Effects, *, forget: bool = False) -> Served:
    """With which words an engine is served in its container, none where it is another program, and on what.

    ``forget``: what a trial has written there is taken away.
    """
    asked = {**question(engine, bench, (), 0), "forget": forget}
    said = asked_there(engine, engine_bench, asked, served_answer, effects, within_s=SPARE_S)
    return Served(**{**said, "words": tuple(said["words"])})


def measure_engine(
    lab: Lab,
    effects: Effects,
    subject: Subject,
    arranged: Sequence[Arrangement],
    *,
    trials: int,
    may_refuse: bool,
) -> tuple[Result, ...]:
    """What each arrangement computes, measured in turns, and kept.

    A first turn counts for nothing. ``trials``: how many follow; 0: as many as fit into the time that they may take.
    Raises ``VerificationError`` where nothing is measured; unless ``may_refuse``, ``PreflightError`` where one of them
    takes longer than requests wait.
    """
    with effects.locked(lab.name, VERB) as lease, serving_again(subject, effects):
        turn_s, wanted, number = subject.start_s * len(arranged), 1, 0
        began = monotonic()
        while number <= wanted:
            lease.check()
            if not may_refuse:
                check_queue(subject, turn_s, "one turn", VERB, "Nothing is kept of it, and the engine serves.")
            sleep(max(began + number * SPREAD_S - monotonic(), 0.0))
            text = f"trial {number} of {wanted}" if number else "a first one that does not count"
            say(subject, text, effects, goes_on=number > 1)
            turn_s = _turn(subject, arranged, effects)
            if not number:
                wanted = trials or trials_within(turn_s / len(arranged))
                for one in arranged:
                    one.trials.clear()
            number += 1
    at = datetime.now(UTC).isoformat(timespec="seconds")
    results = tuple(one.result(subject, at) for one in arranged)
    for result in results:
        keep(file_of(lab.name, subject.service.address), result)
    return results


def _turn(subject: Subject, arranged: Sequence[Arrangement], effects: Effects) -> float:
    """Measure each of them once, with the engine stopped for it, and say how many seconds that took."""
    serve_who_waits(subject, effects)
    pause(subject, effects, LONGEST_TRIAL_S * len(arranged))
    return sum(_trial(subject, one, effects) for one in arranged)


def _trial(subject: Subject, arranged: Arrangement, effects: Effects) -> float:
    """Measure once, and say how many seconds that took, the way to the container included."""
    began = monotonic()
    asked = question(subject, subject.bench, arranged.command, TRIAL_S)
    check = partial(bench_answer, outcomes=OUTCOMES)
    said = asked_there(subject, engine_bench, asked, check, effects, within_s=LONGEST_TRIAL_S)
    address = subject.service.address
    if said["outcome"] != ANSWERED:
        raise VerificationError(
            f"Unable to measure {address}: {said['outcome']}",
            details=said["words"],
            resolution="The engine serves as before. Sweep smaller values, where it has no room.",
        )
    try:
        arranged.add(said["lines"], float(said["waited"]))
    except UnknownLineError as error:
        raise ProviderError(f"Unable to measure {address}: {error}") from error
    return max(float(said["took_s"]), monotonic() - began)


# Results as text and as values: those of a run, those of before, and whether something has become slower.

COLUMNS = ("FIGURE", "MEDIAN", "95 % OF IT", "TRIALS", "WAITED", "WITH")
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
    lines = [_setting_line(results[0]), "", table(COLUMNS, rows, style)]
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


# The picture of measurements of an engine or its clients: a bar for each setting, with its median.

WIDTH = 960
LEFT, RIGHT = 300, 690
"""Where nothing is, and where the fastest trial of a figure is."""
EDGE = 40
ROW, BAR = 26, 12
TOP = 100
GROUP_HEAD, AXIS, GAP = 30, 34, 22
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
        y += GROUP_HEAD + ROW * len(rows) + AXIS + GAP
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
    below = top + GROUP_HEAD + ROW * len(rows)
    yield text(EDGE, top + 14, name, "strong")
    for value in ticks(most):
        x = _place_of(value, most)
        yield f'<path class="line" stroke-opacity="0.3" d="M{x:.1f} {top + GROUP_HEAD - 6:.1f} V{below:.1f}"/>'
        yield text(x, below + 18, f"{value:,.10g}", "quiet", "middle")
    for number, (label, series) in enumerate(rows):
        middle = top + GROUP_HEAD + ROW * (number + 0.5)
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
