"""Models as their files' heads tell them: a hybrid, a dense one, one with windows, and a mixture of experts."""

from __future__ import annotations

from typing import Any

from provisioner.loads.layers import shape_of
from provisioner.loads.terms import MIB, Load
from tests.case_files import read_cases

CASES = read_cases("loads/models")

QWEN: dict[str, Any] = CASES["qwen"]
"""A hybrid of 9B: 8 layers of 32 attend, the others are recurrent."""
NINE = Load("nine", shape_of(QWEN, vocabulary=248_320), weights=5491 * MIB, context=40_192, slots=4)
USABLE = 7360 * MIB
LLAMA: dict[str, Any] = CASES["llama"]
GEMMA: dict[str, Any] = CASES["gemma"]
QWEN_FOLDER: dict[str, Any] = CASES["qwen folder"]
"""The config.json of a dense model of 8B; 40,960 tokens of it are 5,760 MiB of cache."""
MIXTURE: dict[str, Any] = CASES["mixture"]


def mixture_tensors(layers: int = 4) -> dict[str, int]:
    """Tensors of a mixture: 300 MiB of experts and 21 MiB of everything else in each layer, 200 MiB at either end."""
    tensors = {"token_embd.weight": 200 * MIB, "output.weight": 200 * MIB, "output_norm.weight": 8192}
    for layer in range(layers):
        for name in ("gate", "up", "down"):
            tensors[f"blk.{layer}.ffn_{name}_exps.weight"] = 100 * MIB
        tensors |= {f"blk.{layer}.attn_q.weight": 20 * MIB, f"blk.{layer}.ffn_gate_shexp.weight": MIB}
    return tensors


def mixture(**options: Any) -> Load:
    """A load of that model: 1,684 MiB of tensors, of which 200 are never on the card."""
    tensors = mixture_tensors()
    return Load("mixture", shape_of(MIXTURE, 151_936), sum(tensors.values()), 4096, tensors=tensors, **options)
