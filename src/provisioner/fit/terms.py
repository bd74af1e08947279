"""The sum: what one engine needs on a card, term by term, and the largest context with which it still fits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from provisioner.fit.layers import Attention, Recurrent, Shape

MIB = 2**20
CELLS = 256
"""llama.cpp makes room for tokens in steps of so many."""
BITS: dict[str, float] = {
    "f32": 32,
    "f16": 16,
    "bf16": 16,
    "q8_0": 34 / 4,
    "q5_1": 24 / 4,
    "q5_0": 22 / 4,
    "q4_1": 20 / 4,
    "q4_0": 18 / 4,
    "iq4_nl": 18 / 4,
}
"""Bits of one cached number: ggml packs 32 of them with their scale into 34, 24, 22, 20 or 18 bytes."""
BITS |= {f"exl{bits}": bits for bits in range(2, 9)}
"""ExLlama's types; its scales are not counted, as its own figures do not count them either."""
STATE_BYTES, BUFFER_BYTES = 4, 4


@dataclass(frozen=True, slots=True)
class Load:
    """One engine: its model, and the options that decide what it needs. Sizes in bytes, ``context`` for all slots."""

    name: str
    shape: Shape
    weights: int
    context: int
    keys: str = "f16"
    values: str = "f16"
    slots: int = 1
    ubatch: int = 512
    encoder: int = 0
    cache_on_card: bool = True


@dataclass(frozen=True, slots=True)
class Term:
    """One line of the sum."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Sum:
    """All terms of all engines on a card, against what is usable of it."""

    terms: tuple[Term, ...]
    usable: int

    @property
    def total(self) -> int:
        """Bytes that are needed."""
        return sum(term.bytes for term in self.terms)

    @property
    def missing(self) -> int:
        """Bytes that are not there; 0 when it fits."""
        return max(0, self.total - self.usable)


def terms_of(load: Load) -> tuple[Term, ...]:
    """What the engine needs on the card."""
    terms = [Term("weights", load.weights)]
    if load.cache_on_card:
        terms += [Term("cache", cache_bytes(load)), Term("recurrent state", state_bytes(load))]
    terms += [Term("compute buffers", buffer_bytes(load)), Term("image encoder", load.encoder)]
    return tuple(term for term in terms if term.bytes)


def added_up(loads: Iterable[Load], usable: int) -> Sum:
    """The sum over the engines of one card, each term with its engine's name where there are several."""
    found = [(load, term) for load in loads for term in terms_of(load)]
    alone = len({load.name for load, _ in found}) < 2  # noqa: PLR2004  # one engine
    return Sum(tuple(term if alone else Term(f"{load.name}: {term.name}", term.bytes) for load, term in found), usable)


def token_bytes(load: Load) -> int:
    """What one more token takes in the layers that remember all of them."""
    layers = [one for one in load.shape.layers if isinstance(one, Attention) and not one.window]
    return sum(_packed(one, load) for one in layers)


def cache_bytes(load: Load) -> int:
    """What the keys and values of all tokens take; a window keeps its tokens for each slot, and those of one batch."""
    cells = -(-load.context // CELLS) * CELLS
    total = 0
    for layer in load.shape.layers:
        if isinstance(layer, Attention):
            kept = -(-(layer.window * load.slots + load.ubatch) // CELLS) * CELLS if layer.window else cells
            total += _packed(layer, load) * min(kept, cells)
    return total


def state_bytes(load: Load) -> int:
    """What recurrent layers keep, for each slot."""
    return load.slots * STATE_BYTES * sum(one.numbers for one in load.shape.layers if isinstance(one, Recurrent))


def buffer_bytes(load: Load) -> int:
    """What one step of computing takes: logits and embeddings of as many tokens as are computed at once."""
    return (load.shape.vocabulary + load.shape.embedding) * load.ubatch * BUFFER_BYTES


def largest_context(load: Load, free: int) -> int:
    """The largest context, a multiple of 256, with which the engine fits into ``free`` bytes; 0 when none does.

    No larger than the model was trained for, where its file says that.
    """
    lowest, highest = 0, (load.shape.context or 2**24) // CELLS
    while lowest < highest:
        middle = (lowest + highest + 1) // 2
        if sum(term.bytes for term in terms_of(replace(load, context=middle * CELLS))) <= free:
            lowest = middle
        else:
            highest = middle - 1
    return lowest * CELLS


def _packed(layer: Attention, load: Load) -> int:
    return round((layer.keys * BITS[load.keys] + layer.values * BITS[load.values]) / 8)
