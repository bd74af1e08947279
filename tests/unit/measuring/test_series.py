"""A figure that was measured several times: where it lies, and how much more or less it is than another."""

from __future__ import annotations

import random
from statistics import median

import pytest

from provisioner.measuring.series import BUSY, Series, Trial, ratio


def series(*values: float) -> Series:
    """One of these values, nothing disturbed."""
    return Series("pp512", "tokens/s", tuple(Trial(value) for value in values))


def test_one_slow_trial_moves_no_median() -> None:
    assert series(100, 101, 99, 100, 3).middle == 100


def test_of_one_value_the_interval_is_that_value() -> None:
    found = series(7.0).interval
    assert (found.low, found.high) == (7.0, 7.0)


def test_an_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    chance = random.Random(5)  # noqa: S311  # the same each time
    held = 0
    for _ in range(200):
        found = series(*(chance.gauss(100, 3) for _ in range(10))).interval
        held += found.low <= 100 <= found.high
    assert held >= 180


def test_a_ratio_is_that_of_the_medians_and_lies_in_its_interval() -> None:
    before, now = [100.0, 102.0, 98.0, 101.0, 99.0], [90.0, 91.0, 89.0, 92.0, 88.0]
    point, where = ratio(before, now)
    assert point == median(now) / median(before)
    assert where.low <= point <= where.high < 1


def test_trials_in_whose_way_other_work_was_are_counted() -> None:
    found = Series("tg", "tokens/s", (Trial(1, 0.0), Trial(1, BUSY), Trial(1, BUSY + 0.01)))
    assert found.disturbed == 1


def test_a_series_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        series()
