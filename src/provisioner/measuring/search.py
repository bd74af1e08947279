"""Which context is tried next, until the longest one that answers is known. Pure.

Estimates say where it probably is, and are wrong by up to a factor of two. So every context gets a weight by them, and
the one that parts the weight into halves is tried. No estimate may cost too much: a try leaves on both sides of it only
as much as the tries that are left can tell apart, one more than without any estimate where it is wrong by that factor.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import log

NEAR, FAR, ANYWHERE = 0.03, 0.2, 2.0
"""By what part, and by what factor, estimates were wrong where they were compared with what engines answered."""
SHARES = {NEAR: 0.5, FAR: 0.25, ANYWHERE: 0.2}
"""How much weight lies there; the rest is everybody's."""
SPARE = 1
"""So many tries more than halving takes."""
BESIDE = 3
"""So many more where the longest one lies where no estimate is."""


class ContradictionError(Exception):
    """A context did not answer, and a longer one did."""


@dataclass(frozen=True, slots=True)
class Contexts:
    """The contexts that an engine can be asked for: from ``low`` to ``high`` tokens, ``step`` apart."""

    low: int
    high: int
    step: int

    def __post_init__(self) -> None:
        """Refuse a range in which there is nothing to be tried."""
        if self.step < 1 or self.low < 1 or self.high < self.low:
            raise ValueError(f"no contexts: {self}")

    @property
    def tokens(self) -> range:
        """Each of them, in tokens."""
        return range(self.low, self.high + 1, self.step)

    @property
    def most_tries(self) -> int:
        """How many tries at most lead to the longest one that answers."""
        return len(self.tokens).bit_length() + SPARE


@dataclass(frozen=True, slots=True)
class Bounds:
    """Positions among the contexts: the longest that answered (-1: none did), the shortest that did not."""

    answered: int
    refused: int

    @property
    def is_found(self) -> bool:
        """Whether nothing is left to be tried between them."""
        return self.refused == self.answered + 1


def bounds(contexts: Contexts, tried: Mapping[int, bool]) -> Bounds:
    """Where the longest one lies by what was tried (tokens, whether it answered).

    Raises ``ContradictionError`` where a longer one answered and a shorter one did not.
    """
    tokens = contexts.tokens
    answered, refused = -1, len(tokens)
    for length, is_answered in tried.items():
        position = tokens.index(length)
        if is_answered:
            answered = max(answered, position)
        else:
            refused = min(refused, position)
    if refused <= answered:
        raise ContradictionError(f"{tokens[refused]} tokens were not answered, and {tokens[answered]} were")
    return Bounds(answered, refused)


def longest(contexts: Contexts, tried: Mapping[int, bool]) -> int | None:
    """The longest context that answers, in tokens; 0 where the shortest does not, None while it is not known."""
    found = bounds(contexts, tried)
    if not found.is_found:
        return None
    return contexts.tokens[found.answered] if found.answered >= 0 else 0


def next_try(contexts: Contexts, estimates: Sequence[int], tried: Mapping[int, bool]) -> int | None:
    """The context that is tried next, in tokens; None once the longest one is known."""
    within = bounds(contexts, tried)
    if within.is_found:
        return None
    # The longest one is at one of these positions, or before all of them; a try says on which side of it.
    positions = range(within.answered, within.refused)
    weights = list(accumulate(_weight(contexts, estimates, position) for position in positions))
    room = list(accumulate(_room(contexts, estimates, position) for position in positions))
    most = 0.5 ** (len(tried) + 1)
    half = bisect_left(weights, weights[-1] / 2) + 1
    least_before = bisect_left(room, room[-1] - most) + 1 if room[-1] > most else 1
    most_before = bisect_right(room, most)
    chosen = min(max(half, least_before), most_before, len(positions) - 1)
    return contexts.tokens[positions[max(chosen, 1)]]


def _room(contexts: Contexts, estimates: Sequence[int], position: int) -> float:
    """Which part of all outcomes of its tries a context may take: half as much for each that it may need."""
    length = contexts.tokens[max(position, 0)]
    is_thought_of = any(estimate / ANYWHERE <= length <= estimate * ANYWHERE for estimate in estimates)
    tries = contexts.most_tries if is_thought_of or not estimates else contexts.most_tries + BESIDE
    return 0.5**tries


def _weight(contexts: Contexts, estimates: Sequence[int], position: int) -> float:
    """How probable it is that this is the longest one, as a part of a whole that need not be one."""
    everybodys = (1 - sum(SHARES.values())) / len(contexts.tokens)
    if position < 0 or not estimates:
        return everybodys
    length = contexts.tokens[position]
    return everybodys + sum(_by(estimate, length, contexts.step) for estimate in estimates) / len(estimates)


def _by(estimate: int, length: int, step: int) -> float:
    """The weight that one estimate gives a context: that of each circle in which it lies, by how many lie there."""
    weight = 0.0
    for wrong, share in SHARES.items():
        if wrong == ANYWHERE:
            is_inside = estimate / wrong <= length <= estimate * wrong
            weight += share * step / (length * 2 * log(wrong)) if is_inside else 0.0
            continue
        width = max(wrong * length, step)
        if abs(length - estimate) <= width:
            weight += share * step / (2 * width)
    return weight
