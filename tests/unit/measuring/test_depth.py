"""Whether an answer comes of its whole prompt: each part that an engine drops is noticed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import pytest

from provisioner.measuring.probe import BEGINNING, END, MIDDLE, Heard, difference, doubts, places_in

PROMPT = [number % 97 for number in range(1000)]
OTHER = 200


def answered(read: Sequence[int], counted: int | None = None, noise: float = 0.0) -> Heard:
    """What a server answers that reads these tokens: probabilities that follow from each of them."""
    digest = hashlib.sha256(repr(list(read)).encode()).digest()
    following = {str(token): -1 - digest[token] / 256 + noise for token in range(5)}
    return Heard(len(read) if counted is None else counted, following)


def with_other(position: int) -> list[int]:
    """The prompt with another token there."""
    return [*PROMPT[:position], OTHER, *PROMPT[position + 1 :]]


def told(reads: Callable[[Sequence[int]], Sequence[int]], counted: int | None = None) -> list[str]:
    """What is doubted of a server that reads of each prompt what this gives."""
    plain = answered(reads(PROMPT), counted)
    changed = {place: answered(reads(with_other(at))) for place, at in places_in(len(PROMPT)).items()}
    return list(doubts(len(PROMPT), plain, answered(reads(PROMPT)), changed))


def test_of_an_engine_that_reads_all_nothing_is_doubted() -> None:
    assert told(lambda prompt: prompt) == []


@pytest.mark.parametrize(
    ("reads", "dropped"),
    [
        (lambda prompt: prompt[len(prompt) // 3 :], [BEGINNING]),
        (lambda prompt: prompt[: len(prompt) * 2 // 3], [END]),
        (lambda prompt: [*prompt[:100], *prompt[-100:]], [MIDDLE]),
        (lambda prompt: prompt[-50:], [BEGINNING, MIDDLE]),
        (lambda _: [], [BEGINNING, MIDDLE, END]),
    ],
)
def test_who_drops_a_part_and_counts_all_of_it_is_found(
    reads: Callable[[Sequence[int]], Sequence[int]], dropped: list[str]
) -> None:
    found = told(reads, counted=len(PROMPT))
    assert found == [f"another token near the {place} of its prompt changed nothing of the answer" for place in dropped]


def test_another_count_is_doubted_by_itself() -> None:
    assert told(lambda prompt: prompt, counted=999) == ["it counted 999 tokens, and 1000 were sent"]


def test_what_differs_no_more_than_the_same_prompt_from_itself_is_no_change() -> None:
    plain = answered(PROMPT)
    again = answered(PROMPT, noise=0.01)
    little = {MIDDLE: answered(PROMPT, noise=0.02)}
    assert len(list(doubts(len(PROMPT), plain, again, little))) == 1
    much = {MIDDLE: answered(PROMPT, noise=0.04)}
    assert list(doubts(len(PROMPT), plain, again, much)) == []


def test_an_answer_without_probabilities_proves_nothing() -> None:
    silent = Heard(len(PROMPT), {})
    assert list(doubts(len(PROMPT), silent, silent, {})) == ["it did not tell how probable the next tokens are"]


def test_answers_that_share_no_token_differ() -> None:
    assert difference(Heard(1, {"a": -1.0}), Heard(1, {"b": -1.0})) == float("inf")


def test_places_are_near_both_ends_and_in_the_middle() -> None:
    assert places_in(1000) == {BEGINNING: 20, MIDDLE: 500, END: 980}
