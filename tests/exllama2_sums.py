"""What exllamav2's own classes allocate as cache, and reserve to compute with, told by a venv that has it.

Run by that venv's Python from the repository's root: ``python -m tests.exllama2_sums`` reads questions as JSON, a list
(``config``: a config.json; ``tokens``, ``mode``: of the cache, as tabbyAPI calls it, ``chunk``), and answers with
``cache`` (keys, values and scales), ``unpacked`` (one layer of a packed cache), ``reserved`` (for whatever layer
computes) and ``tables`` (of positions) in bytes. PyTorch is the one for the processor, and its native extension a
stand-in: nothing of it runs while tensors are allocated.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.exllama_sums import stand_in

EXTENSION = "exllamav2_ext"
CLASSES = {"FP16": "ExLlamaV2Cache", "Q8": "ExLlamaV2Cache_Q8", "Q6": "ExLlamaV2Cache_Q6", "Q4": "ExLlamaV2Cache_Q4"}
OUTPUTS = 16
"""``max_output_len`` as tabbyAPI has it."""
PROCESSOR = -1
"""The number by which exllamav2 calls it."""


def model_of(question: dict[str, Any]) -> Any:
    """The library's model of a config.json without weights, with tabbyAPI's settings."""
    library = importlib.import_module("exllamav2")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(question["config"]), encoding="utf-8")
        config = library.ExLlamaV2Config()
        config.model_dir = folder
        config.prepare(no_tensors=True)
    config.checkpoint_fused_mlp = False
    config.max_seq_len = question["tokens"]
    config.max_output_len = OUTPUTS
    config.max_input_len = question["chunk"]
    config.max_attention_size = question["chunk"] ** 2
    return library.ExLlamaV2(config)


def tables(model: Any) -> int:
    """Bytes of the tables by which positions are turned, made by the library on the processor."""
    device = importlib.import_module("exllamav2.device")
    context = object.__new__(device.ExLlamaV2DeviceContext)
    context.model, context.device_idx, context.archparams = model, PROCESSOR, model.config.arch.lm
    context.prepare_sincos()
    return bytes_of([*context.sin, *context.cos])


def bytes_of(tensors: list[Any]) -> int:
    """What tensors take."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """What the library allocates and reserves for one question."""
    model = model_of(question)
    classes = importlib.import_module("exllamav2.cache")
    kind = getattr(classes, CLASSES[question["mode"]])
    cache = kind(model, max_seq_len=question["tokens"], batch_size=1, fixed_device="cpu")
    unpacked: list[Any] = []
    for pair in getattr(cache, "temp_tensors", {}).values():
        unpacked += pair
    return {
        "cache": bytes_of(cache.all_tensors()),
        "unpacked": bytes_of(unpacked),
        "reserved": max(module.scratch_space_fixed() for module in model.modules),
        "tables": tables(model),
        "knows": model.config.arch.arch_string == question["config"]["architectures"][0],
        "embeddings": model.modules[0].weight_footprint(),
    }


if __name__ == "__main__":
    stand_in(EXTENSION)
    # The library warns on standard output of a PyTorch that knows no card.
    standard_output, sys.stdout = sys.stdout, sys.stderr
    answers = [answer(question) for question in json.load(sys.stdin)]
    standard_output.write(json.dumps(answers))
