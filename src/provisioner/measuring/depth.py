"""Whether an answer comes of its whole prompt: an engine that drops a part of it answers all the same. Pure.

One token is changed near the beginning, the middle and the end of a long prompt. Where all of it counts, each of them
changes how probable the next tokens are; where a part was dropped, what was changed there changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

BEGINNING, MIDDLE, END = "beginning", "middle", "end"
PLACES: Mapping[str, float] = {BEGINNING: 0.02, MIDDLE: 0.5, END: 0.98}
"""Which part of the prompt stands before the token that is changed."""
LOUDER = 3.0
"""So many times what the same prompt differs from itself a change has to differ: cards add in no fixed order."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What an engine said to a prompt: how many tokens it counted, and log-probabilities of those that may follow."""

    tokens: int
    following: Mapping[str, float]


def places_in(tokens: int) -> dict[str, int]:
    """Where in a prompt of so many tokens one is changed."""
    return {place: int(part * tokens) for place, part in PLACES.items()}


def difference(one: Heard, other: Heard) -> float:
    """By how much two answers differ: the largest difference of a log-probability that both tell.

    Infinite where they tell of no token together.
    """
    both = one.following.keys() & other.following.keys()
    if not both:
        return float("inf")
    return max(abs(one.following[token] - other.following[token]) for token in both)


def doubts(sent: int, plain: Heard, again: Heard, changed: Mapping[str, Heard]) -> Iterator[str]:
    """Why the answer does not come of all ``sent`` tokens; nothing where it does.

    ``again``: what the same prompt was answered a second time; ``changed``: what was answered with another token, by
    the place at which it stood.
    """
    if plain.tokens != sent:
        yield f"it counted {plain.tokens} tokens, and {sent} were sent"
    if not plain.following:
        yield "it did not tell how probable the next tokens are"
        return
    noise = difference(plain, again)
    for place, heard in changed.items():
        moved = difference(plain, heard)
        if moved <= LOUDER * noise or moved == 0.0:
            yield f"another token near the {place} of its prompt changed nothing of the answer"
