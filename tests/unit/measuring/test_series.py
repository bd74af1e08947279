"""A figure that was measured several times: where it lies, and how much more or less it is than another."""

from __future__ import annotations

import random

import pytest

from provisioner.measuring.history import BUSY, Series, Trial


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


def test_trials_in_whose_way_other_work_was_are_counted() -> None:
    found = Series("tg", "tokens/s", (Trial(1, 0.0), Trial(1, BUSY), Trial(1, BUSY + 0.01)))
    assert found.disturbed == 1


def test_a_series_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        series()
