"""A figure that was measured several times: its median, how sure that is, and what disturbed it. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

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
    return _between(medians(values, random.Random(SEED)))  # noqa: S311


def _between(drawn: Sequence[float]) -> Interval:
    beside = round(len(drawn) * (1 - SURE) / 2)
    return Interval(drawn[beside], drawn[-1 - beside])
