"""How fast a way to serve a file writes: as it was measured, else at most, by how fast memory is read. Pure."""

from __future__ import annotations

from dataclasses import replace

from provisioner.loads.candidates import Candidate, Measured, Way
from provisioner.loads.placing import ALL_ON_CARD, INPUT, Placing, expert_bytes, held_back
from provisioner.loads.terms import CELLS, cache_bytes, state_bytes


def speed_of(way: Way, card_speed: float | None) -> float | None:
    """How many tokens in a second it was measured to write, else cannot exceed; None where nobody knows."""
    measured = measured_of(way)
    return measured.per_s if measured is not None else bound_per_s(way, card_speed)


def measured_of(way: Way) -> Measured | None:
    """What was measured of that very way; None without it.

    First what is known to have been served so, then what was measured nearest to half of the context, as bounds are
    reckoned, then the newest.
    """
    half, best, least = way.context // 2, None, (True, 0)
    for measured in way.candidate.measured:
        distance = (not measured.is_told, abs(measured.depth - half))
        if _was_served_so(measured, way) and (best is None or distance <= least):
            best, least = measured, distance
    return best


def _was_served_so(measured: Measured, way: Way) -> bool:
    """Whether what was measured lay as in that way; of an unknown one a dense model is taken to lie on the card."""
    candidate = way.candidate
    if candidate.form or measured.engine:
        role = candidate.server.role if candidate.server is not None else ""
        return bool(role) and (measured.engine, measured.cache) == (role, way.choice.cache)
    if not measured.is_told:
        return not candidate.is_mixture
    count = candidate.load.count
    is_on_card = not Placing(measured.gpu_layers).is_split(count)
    has_experts_there = not candidate.is_mixture or min(measured.experts, count) == way.experts
    return is_on_card and has_experts_there and (measured.keys, measured.values) == (way.keys, way.values)


def bound_per_s(way: Way, card_speed: float | None, host_speed: float | None = None) -> float | None:
    """How many tokens in a second it cannot exceed with half of its context filled; None where nobody knows.

    ``card_speed``, ``host_speed``: bytes in a second that their memories are read with. All that a token needs is read
    for it, one memory after the other. Where nobody knows the host's speed, the card's part alone is a bound as well.
    """
    read = read_bytes(way)
    if read is None or not card_speed:
        return None
    of_card, of_host = read
    seconds = of_card / card_speed
    if host_speed:
        seconds += of_host / host_speed
    return 1 / seconds if seconds else None


def read_bytes(way: Way) -> tuple[int, int] | None:
    """What is read for each token that it writes: bytes of the card, and bytes of the host's memory.

    Of a mixture only the experts that a token asks for; of the cache what half of the context takes; embeddings that
    are looked up are not read but for a row of a few KB. None for a mixture of which too little is known.
    """
    half = way.context // 2 // CELLS * CELLS  # not rounded up: a bound stays one
    load = replace(way.choice.load, context=half)
    share = _asked_share(way.candidate)
    if share is None or way.candidate.idle is None:
        return None
    kept = held_back(load.tensors, ALL_ON_CARD, load.count).total
    experts_away = held_back(load.tensors, Placing(None, way.experts), load.count).total - kept
    experts_on_card = expert_bytes(load.tensors) - experts_away
    always = _computed_with(way.candidate) - experts_away - experts_on_card
    of_card = always + round(experts_on_card * share) + cache_bytes(load) + state_bytes(load) // load.slots
    return of_card, round(experts_away * share)


def _computed_with(candidate: Candidate) -> int:
    """Bytes of the tensors that some token is computed with: all but those that are looked up."""
    load = candidate.load
    if load.tensors:
        return sum(load.tensors.values()) - held_back(load.tensors, ALL_ON_CARD, load.count).total
    looked_up = candidate.idle or 0
    # Of a model in several files those of the first one are known: too little read is a bound as well.
    for name, size in candidate.header.tensors.items():
        if name.startswith(INPUT):
            looked_up += size
    return load.weights - looked_up


def _asked_share(candidate: Candidate) -> float | None:
    """The share of its experts that a token asks for, 1 for a dense model; None where its file does not tell it."""
    header = candidate.header
    if not candidate.is_mixture:
        return 1.0
    used = header.values.get(f"{header.architecture}.expert_used_count")
    if not isinstance(used, int) or not 0 < used <= header.experts or not expert_bytes(candidate.load.tensors):
        return None
    return used / header.experts
