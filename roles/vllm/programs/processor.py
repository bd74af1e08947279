"""Says how fast the processor could compute a model at most: what it reads and multiplies, measured with torch.

Reads JSON: ``weights`` (bytes) and ``config`` (the path of the model's ``config.json``). Answers as JSON: ``prompt``
and ``generated``, in tokens per second. For each token of an answer all weights that it needs are read once; for each
of a prompt each of them is multiplied and added, where a weight has two bytes or fewer. Of experts those count that a
token needs. All of it is more than an engine reaches, so that a card has to be faster than the processor can be.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

TURNS = 5
READ = 256 * 2**20
"""Bytes that are read at once: more than a processor's caches hold."""
SIDE = 1024
"""Of the square matrices that are multiplied."""
OPERATIONS = 2
"""Of each weight for each token: it is multiplied, and added."""
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
AT_ONCE = "num_experts_per_tok"


def best(work: Callable[[], object]) -> float:
    """Seconds of the fastest of some turns."""
    took = []
    for _ in range(TURNS):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return min(took)


def read_per_second() -> float:
    """Bytes of memory that all cores together read."""
    memory = torch.ones(READ // 4, dtype=torch.float32)
    return READ / best(memory.sum)


def operations_per_second() -> float:
    """Operations of a product of matrices, in those numbers in which the processor is faster."""
    fastest = 0.0
    for numbers in (torch.bfloat16, torch.float32):
        one = torch.ones(SIDE, SIDE, dtype=numbers)
        took = best(partial(torch.matmul, one, one))
        fastest = max(fastest, OPERATIONS * SIDE**3 / took)
    return fastest


def share_of_experts(config: Mapping[str, Any]) -> float:
    """The part of the weights that a token needs at least: all of them, or of those with experts as many as it asks."""
    said = {**config, **(config.get("text_config") or {})}
    there = next((said[name] for name in EXPERTS if said.get(name)), 0)
    asked = said.get(AT_ONCE) or 0
    return asked / there if 0 < asked < there else 1.0


def speeds(weights: int, config: Mapping[str, Any]) -> dict[str, float]:
    """The tokens per second of an answer and of a prompt that the processor could reach."""
    needed = weights * share_of_experts(config)
    each = needed / 2  # of two bytes; smaller ones are more, and take longer
    return {
        "generated": read_per_second() / needed,
        "prompt": operations_per_second() / (OPERATIONS * each),
    }


def main(asked: Mapping[str, Any]) -> None:
    """Measure on all cores that the container may use, and say it."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    config = json.loads(Path(asked["config"]).read_text(encoding="utf-8"))
    json.dump(speeds(int(asked["weights"]), config), sys.stdout)


if __name__ == "__main__":
    main(json.load(sys.stdin))
