"""Which of a model's tensors lie on the card, and which in the host's memory: what llama.cpp does with its options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

INPUT = ("token_embd.", "token_embd_norm.", "token_types.", "position_embd.", "per_layer_token_embd.")
"""Looked up and not computed with: they stay in the host's memory, whatever the options say (``load_tensors``)."""
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"
_BLOCK = re.compile(r"blk\.(\d+)\.")
_EXPERT = re.compile(r"blk\.\d+\.ffn_(up|down|gate|gate_up)_(ch|)exps")


@dataclass(frozen=True, slots=True)
class Placing:
    """``gpu_layers``: how many the card computes, the last ones, counting the output as one more; None is all.

    ``cpu_experts``: of how many layers, counted from the first, the experts stay in the host's memory.
    """

    gpu_layers: int | None = None
    cpu_experts: int = 0

    def first_layer(self, count: int) -> int:
        """The first of ``count`` layers that the card computes."""
        return 0 if self.gpu_layers is None else min(count, max(count + 1 - self.gpu_layers, 0))

    def is_split(self, count: int) -> bool:
        """Whether some layers are computed by the card and others by the CPU."""
        return self.first_layer(count) > 0


ALL_ON_CARD = Placing()


@dataclass(frozen=True, slots=True)
class HeldBack:
    """What stays in the host's memory: all of it, and its largest tensor that batches of a prompt are computed with."""

    total: int = 0
    largest: int = 0


def held_back(tensors: Mapping[str, int], placing: Placing, layers: int) -> HeldBack:
    """Return the bytes of a model's tensors that do not lie on the card; ``layers``: all that its file counts."""
    first = placing.first_layer(layers)
    away = {name: size for name, size in tensors.items() if _is_away(name, first, placing)}
    total = sum(away.values())
    if _OUTPUT in tensors or placing.gpu_layers == 0:
        total += sum(size for name, size in tensors.items() if name.startswith(INPUT))
    else:  # the output computes with the embeddings, so that the card has a copy of them
        total += sum(size for name, size in tensors.items() if name.startswith(INPUT) and name != _EMBEDDING)
    return HeldBack(total, max(away.values(), default=0))


def layer_count(tensors: Mapping[str, int]) -> int:
    """How many layers the tensors belong to."""
    return max(map(layer_of, tensors), default=-1) + 1


def layer_of(name: str) -> int:
    """Return the layer to which a tensor belongs, counted from 0; -1 where it belongs to none."""
    block = _BLOCK.match(name)
    return int(block[1]) if block else -1


def expert_bytes(tensors: Mapping[str, int]) -> int:
    """What all experts of all layers take."""
    return sum(size for name, size in tensors.items() if _EXPERT.match(name))


def _is_away(name: str, first: int, placing: Placing) -> bool:
    layer = layer_of(name)
    if layer < 0:
        return placing.gpu_layers == 0 and not name.startswith(INPUT)
    return layer < first or (layer < placing.cpu_experts and _EXPERT.match(name) is not None)
