"""Results of ``bench``: series of trials, how sure they are, how they are stored, and whether one became slower."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from statistics import fmean, median
from typing import Any

from provisioner.labfile.whole_files import replace_text
from provisioner.values import paths
from provisioner.values.address import Address
from provisioner.values.plain_data import json_value
from provisioner.values.regular_files import text_of

# Series: a figure that was measured several times, its median, how sure that is, and what disturbed it.

SURE = 0.95
"""How sure an interval is."""
DRAWS = 2000
"""So often values are drawn anew from those that were measured, for an interval (bootstrap)."""
SEED = 20261128
SECONDS = "s"
"""The unit of what is better when it is less; of everything else more is better."""
BUSY = 0.20
"""Which part of the time something else may have waited for a processor, until a trial counts as disturbed."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Where a figure lies, with ``SURE``."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Trial:
    """One measurement; ``waited``: the part of its time in which something had to wait for a processor of the host.

    That is -1 where nobody tells.
    """

    value: float
    waited: float = 0.0

    @property
    def is_disturbed(self) -> bool:
        """Whether other work was in its way."""
        return self.waited > BUSY


@dataclass(frozen=True, slots=True)
class Series:
    """All trials of one figure, such as tokens per second, in the order in which they were made."""

    name: str
    unit: str
    trials: tuple[Trial, ...]

    def __post_init__(self) -> None:
        """Refuse a series in which nothing was measured."""
        if not self.trials:
            raise ValueError(f"{self.name}: nothing was measured")

    @property
    def is_time(self) -> bool:
        """Whether less of it is better."""
        return self.unit == SECONDS

    @property
    def values(self) -> tuple[float, ...]:
        """What was measured."""
        return tuple(one.value for one in self.trials)

    @property
    def middle(self) -> float:
        """The median, which one slow trial does not move."""
        return median(self.values)

    @property
    def interval(self) -> Interval:
        """Where the median lies."""
        return _interval(self.values)

    @property
    def disturbed(self) -> int:
        """How many trials were disturbed."""
        return sum(one.is_disturbed for one in self.trials)


def medians(values: Sequence[float], chance: random.Random) -> list[float]:
    """Medians of as many values as there are, drawn from them again and again, in order of size."""
    return sorted(median(chance.choices(values, k=len(values))) for _ in range(DRAWS))


@lru_cache(1024)
def _interval(values: tuple[float, ...]) -> Interval:
    """Draw with the same chance each time: a page asks for the interval of one series again and again."""
    drawn = medians(values, random.Random(SEED))  # noqa: S311
    beside = round(len(drawn) * (1 - SURE) / 2)
    return Interval(drawn[beside], drawn[-1 - beside])


# Results, kept as files that people can read.

FOLDER = "benchmarks"
ACCEPTED = ".accepted.jsonl"
SETTING = ("host", "processor", "card", "driver", "build", "model")


class DamagedResultError(Exception):
    """A line is no result of a benchmark."""


@dataclass(frozen=True, slots=True)
class Setting:
    """On what something was measured: all of it decides about the figures, and ``options`` say with what."""

    host: str
    processor: str
    card: str
    driver: str
    build: str
    model: str
    """The SHA-256 of its file."""
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Result:
    """One run of ``bench``: when, of which kind, of what, and its series by their names."""

    at: str
    kind: str
    service: str
    setting: Setting
    series: tuple[Series, ...]
    cold: Mapping[str, float] = field(default_factory=dict)
    """What the first time took, in seconds, by what that was; it counts for nothing else."""


def differences(one: Setting, other: Setting, names: Sequence[str] = SETTING) -> Iterator[str]:
    """What of two settings is not the same, a line each, of these names and of the options.

    Such as ``driver: 580.95 and 590.12``.
    """
    for name in names:
        yield from _unlike(name, getattr(one, name), getattr(other, name))
    for name in sorted(one.options.keys() | other.options.keys()):
        yield from _unlike(name, one.options.get(name, ""), other.options.get(name, ""))


def file_of(lab: str, address: Address) -> Path:
    """Where the results of a service are kept."""
    return paths.state(lab) / FOLDER / f"{address.container}.{address.service}.jsonl"


def accepted_file_of(lab: str, address: Address) -> Path:
    """Where those results of it are kept that later ones are held against, one for each kind and its options."""
    return file_of(lab, address).with_suffix(ACCEPTED)


def files_of(lab: str) -> list[Path]:
    """Where the results of all services of a lab are kept, those apart that were accepted, by their names."""
    files = (paths.state(lab) / FOLDER).glob("*.jsonl")
    return sorted(file for file in files if not file.name.endswith(ACCEPTED))


def accept(file: Path, results: Sequence[Result]) -> None:
    """Have later results held against these, and no longer against those of the same kind and options.

    Raises ``InputError`` where that cannot be written, and ``DamagedResultError`` for what is there.
    """
    kept = [one for one in results_in(file) if not any(_is_of_the_same(one, other) for other in results)]
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_text(file, "".join(f"{line_of(one)}\n" for one in (*kept, *results)))


def accepted_for(kind: str, options: Mapping[str, str], accepted: Sequence[Result]) -> Result | None:
    """What a result of that kind with these options is held against; None where nothing of it was accepted."""
    found = [one for one in accepted if (one.kind, one.setting.options) == (kind, options)]
    return found[-1] if found else None


def _is_of_the_same(one: Result, other: Result) -> bool:
    return (one.kind, one.service, one.setting.options) == (other.kind, other.service, other.setting.options)


def line_of(result: Result) -> str:
    """A result as it is kept."""
    setting = {name: getattr(result.setting, name) for name in SETTING} | {"options": {**result.setting.options}}
    series = [
        {"name": one.name, "unit": one.unit, "trials": [[trial.value, trial.waited] for trial in one.trials]}
        for one in result.series
    ]
    said: dict[str, Any] = {
        "at": result.at,
        "kind": result.kind,
        "service": result.service,
        "setting": setting,
        "series": series,
    }
    said |= {"cold": {**result.cold}} if result.cold else {}
    return json.dumps(said)


def result_in(line: str) -> Result:
    """The result that a line holds; raises ``DamagedResultError`` where it holds none."""
    try:
        said = json_value(line)
        setting = said["setting"]
        options = {str(name): str(value) for name, value in setting["options"].items()}
        found = Result(
            at=str(said["at"]),
            kind=str(said["kind"]),
            service=str(said["service"]),
            setting=Setting(**{name: str(setting[name]) for name in SETTING}, options=options),
            series=tuple(map(_series, said["series"])),
            cold={str(name): float(value) for name, value in said.get("cold", {}).items()},
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedResultError(f"no result of a benchmark: {error!r}") from error
    if not found.series:
        raise DamagedResultError("no result of a benchmark: nothing was measured")
    return found


def keep(file: Path, result: Result) -> None:
    """Add a result; raises ``OSError`` where nothing can be written."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as stream:
        stream.write(f"{line_of(result)}\n")


def results_in(file: Path) -> list[Result]:
    """All results of a file, the oldest first, none where it is not there; ``DamagedResultError`` with the line."""
    try:
        lines = text_of(file).splitlines()
    except FileNotFoundError:
        return []
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(result_in(line))
        except DamagedResultError as error:
            raise DamagedResultError(f"{file}:{number}: {error}") from error
    return found


def _series(said: Mapping[str, Any]) -> Series:
    trials = tuple(Trial(float(value), float(waited)) for value, waited in said["trials"])
    return Series(str(said["name"]), str(said["unit"]), trials)


def _unlike(name: str, one: str, other: str) -> Iterator[str]:
    if one != other:
        yield f"{name}: {one or 'none'} and {other or 'none'}"


# The gate: results are compared figure by figure, to tell what has become slower from what is noise.
#
# Something has become slower where a figure is worse by more than the threshold **and** its interval agrees that it is
# worse at all. Held against each other are means, without the few lowest and highest trials: of figures that differ by
# a tenth from one another a median says less, and a single trial in whose way something was may not decide. How both
# do is seen in series that a real llama-bench was recorded with (``tests/unit/measuring/test_gate.py``).

THRESHOLD = 0.05
"""By which part a figure has to be worse, unless told otherwise."""
SURE_OF_WORSE = 0.99
"""How sure it has to be that it is worse: a gate that is asked each night may see nothing where nothing is."""
DRAWS_OF_GATE = 1000
LEFT_OUT = 0.05
"""Which part of the trials is left out at either end."""
HALF = 0.5
SAME = ("host", "processor", "card", "model")
"""What has to be the same for two results to be held against each other."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure before and now: how many times as much there is now, and where that lies with ``SURE``."""

    before: Series
    now: Series
    times: float
    where: Interval

    @property
    def name(self) -> str:
        """What was measured."""
        return self.now.name

    @property
    def is_noise(self) -> bool:
        """Whether nothing may have changed."""
        return self.where.low <= 1.0 <= self.where.high

    @property
    def unseen(self) -> float:
        """By which part it could be worse without anybody knowing: what is between the figure and its worse end."""
        return max(self.where.high / self.times - 1.0 if self.now.is_time else 1.0 - self.where.low / self.times, 0.0)

    @property
    def is_slower(self) -> bool:
        """Whether it takes longer, or there is less of it in a second; that may be noise."""
        return self.times > 1.0 if self.now.is_time else self.times < 1.0

    def is_worse(self, threshold: float = THRESHOLD) -> bool:
        """Whether it is worse by more than the threshold, and that is no noise."""
        if self.now.is_time:
            return self.times > 1.0 + threshold and self.where.low > 1.0
        return self.times < 1.0 - threshold and self.where.high < 1.0


def compared(before: Series, now: Series) -> Compared:
    """Two series of one figure, held against each other."""
    chance = random.Random(SEED)  # noqa: S311  # the same each time
    drawn = sorted(typical(_drawn(now, chance)) / typical(_drawn(before, chance)) for _ in range(DRAWS_OF_GATE))
    beside = round(len(drawn) * (1 - SURE_OF_WORSE) / 2)
    times = typical(now.values) / typical(before.values)
    return Compared(before, now, times, Interval(drawn[beside], drawn[-1 - beside]))


def typical(values: Sequence[float]) -> float:
    """The mean of all but the few lowest and highest."""
    left_out = int(len(values) * LEFT_OUT)
    return fmean(sorted(values)[left_out : len(values) - left_out])


def _drawn(series: Series, chance: random.Random) -> list[float]:
    return chance.choices(series.values, k=len(series.values))


def held(before: Result, now: Result) -> Iterator[Compared]:
    """Each figure that both results have; not one that was measured once, of which nobody knows how sure it is."""
    known = {one.name: one for one in before.series if len(one.trials) > 1}
    for series in now.series:
        if series.name in known and series.unit == known[series.name].unit and len(series.trials) > 1:
            yield compared(known[series.name], series)


def others(before: Setting, now: Setting) -> Iterator[str]:
    """Why two results cannot be held against each other: what they are of is not the same, or nobody knows it."""
    yield from differences(before, now, SAME)
    if not now.model and not before.model:
        yield "model: nobody tells which one it is"


def troubled(before: Result, now: Result) -> str:
    """Why figures say nothing of an engine: only one of the two was measured while other work ran; else empty.

    That is so where more than half of the trials of a result were disturbed, and not of the other.
    """
    shares = [_share_disturbed(one.series) for one in (before, now)]
    if (shares[0] > HALF) == (shares[1] > HALF):
        return ""
    return f"other work was in the way of {shares[0]:.0%} of the trials then, and of {shares[1]:.0%} now"


def _share_disturbed(series: Sequence[Series]) -> float:
    return sum(one.disturbed for one in series) / sum(len(one.trials) for one in series)


# The budget: how many trials are made of what is measured, and for how long.

BUDGET_S = 270.0
"""So long the trials of one setting may take, unless their number is said."""
MOST_TRIALS = 60
"""As many make a tenth less seen on a machine whose figures differ by a tenth from one another."""
LEAST_TRIALS = 10
SPREAD_S = BUDGET_S / MOST_TRIALS
"""From trial to trial at least: what disturbs a machine for seconds would be in the way of many at once."""


def trials_within(first_s: float) -> int:
    """How many trials of one setting fit into the time that they may take, where the first one took so long."""
    fit = int(BUDGET_S / first_s) if first_s > 0 else MOST_TRIALS
    return max(LEAST_TRIALS, min(fit, MOST_TRIALS))
