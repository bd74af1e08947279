"""The gate: no alarm where nothing has changed, and one where everything is a tenth slower; as recorded (see data)."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provisioner.measuring.history import SECONDS, Result, Series, Setting, Trial, compared, held, others, troubled

RECORDED = Path(__file__).parents[2] / "data/benchmarks/llama_bench_series.jsonl"
"""Written by ``benchmarks.engine_series`` before there was a gate; each series has the default number of trials."""
TRIALS = 60
SETTING = Setting("box", "EPYC", "H100", "580.95", "b11312", "ab" * 32, {"b": "2048"})


def recorded(*, is_busy: bool) -> dict[str, list[float]]:
    """What was measured of each figure on a quiet machine, or on a busy one."""
    found: dict[str, list[float]] = {}
    for line in RECORDED.read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        if one["busy"] is is_busy:
            assert len(one["trials"]) == TRIALS
            found.setdefault(one["name"], []).extend(value for value, _ in one["trials"])
    return found


def of(values: Sequence[float], name: str = "tg64", waited: float = 0.0) -> Series:
    """One of these values."""
    return Series(name, "tokens/s", tuple(Trial(value, waited) for value in values))


def alarms(times: float, *, is_busy: bool, pairs: int) -> int:
    """In how many pairs of what was recorded the second one is found worse, so many times as fast."""
    chance = random.Random(24)  # noqa: S311  # the same each time
    found = 0
    pools = recorded(is_busy=is_busy)
    for number in range(pairs):
        pool = pools[sorted(pools)[number % len(pools)]]
        before, now = chance.choices(pool, k=TRIALS), chance.choices(pool, k=TRIALS)
        found += compared(of(before), of([value * times for value in now])).is_worse()
    return found


@pytest.mark.slow
def test_of_three_hundred_pairs_in_which_nothing_changed_at_most_three_are_found_worse() -> None:
    assert alarms(1.0, is_busy=False, pairs=150) + alarms(1.0, is_busy=True, pairs=150) <= 3


def test_of_a_hundred_that_are_a_tenth_slower_at_least_ninety_are_found() -> None:
    assert alarms(0.9, is_busy=False, pairs=100) >= 90


def test_less_than_the_threshold_is_no_alarm_however_sure_it_is() -> None:
    found = compared(of([100.0] * TRIALS), of([96.0] * TRIALS))
    assert found.where.high < 1
    assert not found.is_worse()
    assert found.is_worse(0.03)


def test_much_less_is_no_alarm_where_it_may_be_noise() -> None:
    found = compared(of([100.0, 50.0, 150.0, 90.0]), of([60.0, 140.0, 80.0, 40.0]))
    assert found.times < 0.9
    assert found.is_noise
    assert not found.is_worse()


def test_one_trial_in_whose_way_something_was_decides_nothing() -> None:
    found = compared(of([100.0] * TRIALS), of([*[100.0] * (TRIALS - 1), 1.0]))
    assert found.times == 1


def test_faster_is_no_alarm() -> None:
    found = compared(of([100.0] * TRIALS), of([120.0] * TRIALS))
    assert (found.is_worse(), found.is_noise) == (False, False)


def result(*series: Series, setting: Setting = SETTING) -> Result:
    """One of these series."""
    return Result("2026-11-28T01:00:00+00:00", "engine", "llama/llama_cpp", setting, series)


def test_figures_are_held_against_those_of_the_same_name() -> None:
    before = result(of([1.0] * 2, "pp512"), of([2.0] * 2, "tg64"))
    now = result(of([2.0] * 2, "tg64"), of([5.0] * 2, "tg128"))
    assert [(one.name, one.times) for one in held(before, now)] == [("tg64", 1.0)]
    assert list(held(result(of([2.0], "tg64")), now)) == [], "measured once: nobody knows how sure that is"


@pytest.mark.parametrize(
    ("times", "is_worse", "is_slower"),
    [(1.5, True, True), (1.03, False, True), (1.0, False, False), (0.6, False, False)],
)
def test_less_of_a_time_is_better(times: float, is_worse: bool, is_slower: bool) -> None:
    before = Series("first token", SECONDS, tuple(Trial(1.0 + number / 1000) for number in range(10)))
    now = Series("first token", SECONDS, tuple(Trial(one.value * times) for one in before.trials))
    found = compared(before, now)
    assert (found.is_worse(), found.is_slower) == (is_worse, is_slower)
    assert 0 <= found.unseen < 0.01


def changed(name: str) -> Setting:
    """Another one of that."""
    words: dict[str, Any] = {name: "other"}
    return replace(SETTING, **words)


@pytest.mark.parametrize("name", ["host", "processor", "card", "model"])
def test_results_of_something_else_are_not_held_against_each_other(name: str) -> None:
    assert list(others(SETTING, changed(name))) == [f"{name}: {getattr(SETTING, name)} and other"]


def test_two_models_of_which_nobody_tells_which_they_are_may_be_two() -> None:
    unknown = replace(SETTING, model="")
    assert list(others(unknown, unknown)) == ["model: nobody tells which one it is"]


def test_another_driver_and_build_are_what_a_gate_is_for() -> None:
    assert list(others(SETTING, replace(SETTING, driver="590", build="b2"))) == []
    assert list(others(SETTING, replace(SETTING, options={"b": "1"}))) == ["b: 2048 and 1"]


def test_only_one_of_them_measured_on_a_busy_machine_says_nothing() -> None:
    quiet, busy = result(of([1.0] * 4)), result(of([0.5] * 4, waited=0.5))
    assert troubled(quiet, busy) == "other work was in the way of 0% of the trials then, and of 100% now"
    assert troubled(busy, quiet)
    assert troubled(busy, busy) == troubled(quiet, quiet) == ""
