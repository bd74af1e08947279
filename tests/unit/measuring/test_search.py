"""Which context is tried next: the longest one is found exactly, in few tries, however wrong the estimates are."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence

import pytest

from provisioner.measuring.probe import Contexts, ContradictionError, longest, next_try

KIB = 1024
CONTEXTS = Contexts(4 * KIB, 128 * KIB, 256)
SEED = 20261127


def tries(truth: int, estimates: Sequence[int], contexts: Contexts = CONTEXTS) -> int:
    """How many tries find it; that it is found is asserted."""
    tried: dict[int, bool] = {}
    while True:
        length = next_try(contexts, estimates, tried)
        if length is None:
            break
        assert length not in tried, "nothing is tried twice"
        tried[length] = length <= truth
    assert longest(contexts, tried) == truth
    return len(tried)


def test_of_200_ceilings_all_are_found_in_10_tries_and_half_of_them_in_6() -> None:
    chance = random.Random(SEED)  # noqa: S311  # drawn by a seed
    wrong_by = [
        *(1 + chance.uniform(-0.03, 0.03) for _ in range(100)),
        *(1 + chance.uniform(-0.2, 0.2) for _ in range(50)),
        *(2 ** chance.uniform(-1, 1) for _ in range(50)),
    ]
    taken = []
    for factor in wrong_by:
        truth = chance.choice(CONTEXTS.tokens)
        taken.append(tries(truth, [int(truth * factor)]))
    assert statistics.median(taken) <= 6
    assert max(taken) <= 10


@pytest.mark.parametrize("estimates", [[], [64 * KIB], [4 * KIB], [128 * KIB], [10 * KIB, 90 * KIB], [1], [10**7]])
def test_every_ceiling_is_found_whatever_was_estimated(estimates: list[int]) -> None:
    for truth in (0, *CONTEXTS.tokens[::23], 4 * KIB, 128 * KIB):
        assert tries(truth, estimates) <= CONTEXTS.most_tries + 4


def test_without_an_estimate_halves_are_tried() -> None:
    assert max(tries(truth, []) for truth in CONTEXTS.tokens[::7]) <= CONTEXTS.most_tries
    assert next_try(CONTEXTS, [], {}) in range(60 * KIB, 72 * KIB)


def test_the_first_try_is_near_the_estimate() -> None:
    first = next_try(CONTEXTS, [40 * KIB], {})
    assert first is not None
    assert abs(first - 40 * KIB) <= 0.03 * 40 * KIB


@pytest.mark.parametrize(("step", "high"), [(16, 16 * KIB), (256, 4 * KIB), (256, 1024 * KIB), (1024, 5 * KIB)])
def test_other_ranges_are_searched_as_well(step: int, high: int) -> None:
    contexts = Contexts(4 * KIB, high, step)
    chance = random.Random(SEED)  # noqa: S311  # drawn by a seed
    for truth in (0, contexts.low, contexts.tokens[-1], *(chance.choice(contexts.tokens) for _ in range(5))):
        assert tries(truth, [high // 2], contexts) <= contexts.most_tries + 4


def test_what_was_tried_before_a_kill_counts() -> None:
    tried = {40 * KIB: True, 44 * KIB: False}
    following = next_try(CONTEXTS, [64 * KIB], tried)
    assert following is not None
    assert 40 * KIB < following < 44 * KIB
    assert longest(CONTEXTS, tried) is None


def test_where_the_shortest_does_not_answer_none_does() -> None:
    tried = {4 * KIB: False}
    assert next_try(CONTEXTS, [64 * KIB], tried) is None
    assert longest(CONTEXTS, tried) == 0


def test_what_contradicts_itself_is_told() -> None:
    with pytest.raises(ContradictionError, match="8192 tokens were not answered, and 16384 were"):
        next_try(CONTEXTS, [], {8 * KIB: False, 16 * KIB: True})


@pytest.mark.parametrize("wrong", [(0, 10, 1), (10, 9, 1), (1, 10, 0), (-5, 10, 1)])
def test_a_range_without_contexts_is_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="no contexts"):
        Contexts(*wrong)
