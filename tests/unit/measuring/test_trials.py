"""What is asked of a container that tries a context, and what of its answer counts."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.inside.answers import DamagedAnswerError, trial_answer
from provisioner.measuring.probe import LEAST_LEFT, Tried, foreseen_s, outcomes_of, tried

ASKED: dict[str, Any] = {"placed": "", "ask": {"tokens": 1000, "changed": [None, None, 20, 500, 980]}}
ON_CARD = {**ASKED, "placed": "offloaded"}


def answer(**more: Any) -> dict[str, Any]:
    """The answer of an engine that reads all of its prompt."""
    heard = [{"tokens": 1000, "following": {"1": -1.0 - max(0, number - 1)}} for number in range(5)]
    found = {"outcome": "answered", "words": "", "load_s": 1.5, "sent": 1000, "heard": heard, "layers": [0, 0]}
    return {**found, "memory": 5, "left": -1, "card": -1, **more}


def test_an_answer_of_all_of_a_prompt_counts() -> None:
    one = tried(2048, ASKED, answer(), 9.0)
    assert (one.context, one.outcome, one.load_s, one.took_s, one.memory, one.card) == (
        2048,
        "answered",
        1.5,
        9.0,
        5,
        -1,
    )
    assert one.is_answered


@pytest.mark.parametrize(
    ("layers", "words"),
    [([33, 33], ""), ([32, 33], "it has 32 of 33 layers on the card"), ([0, 0], "it says nothing of layers")],
)
def test_layers_that_are_not_on_the_card_make_it_doubtful(layers: list[int], words: str) -> None:
    one = tried(2048, ON_CARD, answer(layers=layers), 9.0)
    assert (one.words, one.is_answered) == (words, not words)
    assert tried(2048, ASKED, answer(layers=layers), 9.0).is_answered


@pytest.mark.parametrize(
    ("left", "outcome"), [(LEAST_LEFT, "answered"), (-1, "answered"), (LEAST_LEFT - 1, "no room"), (0, "no room")]
)
def test_a_container_needs_room_for_what_proves_the_engine(left: int, outcome: str) -> None:
    """An engine that took all of it answered, and was ended by the kernel when it was brought up with that context."""
    one = tried(2048, ASKED, answer(left=left), 9.0)
    assert one.outcome == outcome
    assert ("MiB of memory" in one.words) == (outcome == "no room")


def test_what_did_not_answer_stays_what_it_was() -> None:
    one = tried(2048, ON_CARD, answer(outcome="no room", words="out of memory", heard=[]), 9.0)
    assert (one.outcome, one.words, one.is_answered) == ("no room", "out of memory", False)


@pytest.mark.parametrize(
    "damage",
    [
        {"outcome": "well"},
        {"outcome": 5},
        {"heard": []},
        {"heard": [{"tokens": 1000}] * 5},
        {"heard": [{"tokens": "1000", "following": {}}] * 5},
        {"heard": [{"tokens": 1000, "following": {"1": "no"}}] * 5},
        {"heard": [{"tokens": 1000, "following": ["1"]}] * 5},
        {"layers": [1]},
        {"layers": [1, -2]},
        {"memory": -2},
        {"card": True},
        {"load_s": "1"},
        {"load_s": -1},
        {"words": 5},
        {"more": 1},
    ],
)
def test_an_answer_that_is_none_is_damaged(damage: dict[str, Any]) -> None:
    assert trial_answer(answer(), outcomes_of(ASKED)) == answer()
    with pytest.raises(DamagedAnswerError):
        trial_answer(answer(**damage), outcomes_of(ASKED))


def test_a_longer_context_is_foreseen_to_take_longer_by_the_longest_that_answered() -> None:
    short = Tried(1000, "answered", load_s=1, took_s=3)
    long = Tried(2000, "answered", load_s=2, took_s=12)
    failed = Tried(9000, "no room", took_s=500)
    assert foreseen_s(4000, [failed]) == 0
    assert foreseen_s(4000, [short, long, failed]) == 22
