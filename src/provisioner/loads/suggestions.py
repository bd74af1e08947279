"""Which file of a model a card is best given, and how: its cache, its context, where its experts lie. Pure.

All of it on the card, or of a mixture all but the experts of some layers; a dense model is never split between card and
CPU, where it is slower than on either. Below Q4_K_M nothing is suggested while anything else fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from provisioner.loads.advice import LEAST_CONTEXT
from provisioner.loads.candidates import Candidate, Way
from provisioner.loads.placing import Placing, expert_bytes
from provisioner.loads.speeds import speed_of
from provisioner.loads.terms import Load, largest_context, needed_bytes, total_of
from provisioner.loads.uses import Use
from provisioner.loads.weights import FLOOR

SLOW_PER_S = 5.0
"""Tokens in a second that people read, about 4 words: an answer that is written slower than that keeps them waiting."""


@dataclass(frozen=True, slots=True, order=True)
class Rank:
    """What decides of two ways, the first that differs; the smaller one is better."""

    is_too_short: bool
    is_below_floor: bool
    is_slow: bool
    experts: int
    cache: int
    """Its place among those of its engine."""
    lacking_weights: int
    """Bytes of its weights, negative: the more the better."""
    seconds: float
    """For each token, as measured, else at least; 0 where nobody knows."""
    name: str


@dataclass(frozen=True, slots=True)
class Left:
    """A file that is not suggested, and why."""

    candidate: Candidate
    why: str


def ways_of(candidate: Candidate, usable: int) -> tuple[Way, ...]:
    """Every way to serve a file on a card with so many usable bytes: one for each type of cache with which it fits.

    What others take of the card is not there for it.
    """
    return tuple(_ways(candidate, usable))


def room_of(candidate: Candidate, usable: int) -> int:
    """What others leave to a file of a card's usable bytes."""
    return max(usable - candidate.taken, 0)


def _ways(candidate: Candidate, usable: int) -> Iterator[Way]:
    room = room_of(candidate, usable)
    for place, choice in enumerate(candidate.caches):
        for experts in _places_of_experts(choice.load):
            placed = replace(choice.load, placing=Placing(None, experts))
            context = largest_context(placed, room)
            if context >= LEAST_CONTEXT:
                total = total_of(replace(placed, context=context))
                yield Way(candidate, choice, place, experts, context, total, room)
                break  # each further layer in the host's memory makes it slower


def _places_of_experts(load: Load) -> Iterator[int]:
    """Of how many layers the experts may stay in the host's memory, the fewest first."""
    yield 0
    if load.shape.experts and expert_bytes(load.tensors):
        yield from range(1, load.count + 1)


def best_way(ways: Iterable[Way], use: Use) -> Way | None:
    """The one that loses least and has the context of that use; where none has it, the one with the longest."""
    known = list(ways)
    enough = [one for one in known if one.context >= use.context]
    if enough:
        return min(enough, key=lambda one: (one.experts, one.place))
    return max(known, key=lambda one: one.context, default=None)


def suggested(
    candidates: Iterable[Candidate], usable: int, use: Use, card_speed: float | None = None
) -> tuple[list[Way], list[Left]]:
    """The best way of each file that can be served for that use, the best file first; and those that cannot, and why.

    First those that have its context, then those not below the floor, then those that can write faster than anybody
    reads, then those with all experts on the card, then those whose cache loses nothing; of equals the one with more
    bits of a weight, then the one that writes faster, by what was measured, else by its bound. ``card_speed``: bytes in
    a second that the card's memory is read with, None where nobody knows.
    """
    ways: list[Way] = []
    left: list[Left] = []
    for candidate in candidates:
        obstacle = _obstacle(candidate, use)
        found = best_way(ways_of(candidate, usable), use) if not obstacle else None
        if found is None:
            left.append(Left(candidate, obstacle or _why_not(candidate, usable)))
        else:
            ways.append(found)
    good = [one for one in ways if not one.candidate.is_below_floor]
    for one in ways:
        if good and one not in good:
            why = f"below {FLOOR}, and a better one fits"
            left.append(Left(one.candidate, why))
    ways = good or ways
    return sorted(ways, key=lambda one: _rank(one, use, card_speed)), left


def _obstacle(candidate: Candidate, use: Use) -> str:
    """Why a file is not suggested, however large the card is; empty where nothing is in the way."""
    if candidate.unknown:
        return candidate.unknown
    if use.sees and candidate.form:
        return "what images take of a card with a model that is a folder is not added up"
    if use.sees and not candidate.sees:
        return "it has no projector, and sees nothing"
    if not candidate.load.weights:
        return "nobody tells how large it is"
    return "; ".join(candidate.load.shape.unread)


def _rank(way: Way, use: Use, card_speed: float | None) -> Rank:
    speed = speed_of(way, card_speed)
    return Rank(
        is_too_short=way.context < use.context,
        is_below_floor=way.candidate.is_below_floor,
        is_slow=speed is not None and speed < SLOW_PER_S,
        experts=way.experts,
        cache=way.place,
        lacking_weights=-way.candidate.load.weights,
        seconds=1 / speed if speed else 0.0,
        name=way.candidate.name,
    )


def _why_not(candidate: Candidate, usable: int) -> str:
    """By how much it is too large, at its smallest."""
    smallest = replace(candidate.caches[-1].load, context=LEAST_CONTEXT)
    *_, most_away = _places_of_experts(smallest)
    least = needed_bytes(replace(smallest, placing=Placing(None, most_away)))
    left = room_of(candidate, usable)
    room = min(left, smallest.share or left)
    missing = -(-(least - room) // 2**20)
    besides = ", with all experts in the host's memory" if most_away else ", and a dense model is not split"
    if candidate.is_mixture and not most_away:
        besides = ""
    return f"{missing:,} MiB too much even with {LEAST_CONTEXT:,} tokens{besides}"
