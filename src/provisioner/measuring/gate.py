"""The gate: results are compared figure by figure, to tell what has become slower from what is noise. Pure.

Something has become slower where a figure is worse by more than the threshold **and** its interval agrees that it is
worse at all. Held against each other are means, without the few lowest and highest trials: of figures that differ by a
tenth from one another a median says less, and a single trial in whose way something was may not decide. How both do is
seen in series that a real llama-bench was recorded with (``tests/unit/measuring/test_gate.py``).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from provisioner.measuring.history import SEED, Interval, Result, Series, Setting, differences

THRESHOLD = 0.05
"""By which part a figure has to be worse, unless told otherwise."""
SURE = 0.99
"""How sure it has to be that it is worse: a gate that is asked each night may see nothing where nothing is."""
DRAWS = 1000
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
    drawn = sorted(typical(_drawn(now, chance)) / typical(_drawn(before, chance)) for _ in range(DRAWS))
    beside = round(len(drawn) * (1 - SURE) / 2)
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
