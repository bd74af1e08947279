"""What exllamav3's own classes allocate as cache and state, told by a venv that has it and PyTorch for the processor.

Run by that venv's Python from the repository's root: ``python -m tests.exllama_sums`` reads a list of questions as JSON
(``config``: a config.json; ``tokens``, ``bits``: two numbers or null, ``slots``, ``history``), and answers with a list
of ``cache`` and ``state`` in bytes, and ``is_recurrent``. Its native extension alone is a stand-in: nothing of it runs
while tensors are allocated.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import json
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

EXTENSION = "exllamav3_ext"


def stand_in(extension: str) -> None:
    """Give a library the native extension of that name, which answers nothing; raises nothing."""
    module = mock.MagicMock(name=extension)
    origin = extension + importlib.machinery.EXTENSION_SUFFIXES[0]
    module.__spec__ = importlib.machinery.ModuleSpec(extension, mock.MagicMock(), origin=origin)
    sys.modules[extension] = module


def allocated(layers: Any) -> int:
    """Bytes of all tensors that the layers hold once they are allocated on the processor."""
    torch = importlib.import_module("torch")
    total = 0
    for layer in layers:
        layer.alloc(torch.device("cpu"))
        for value in vars(layer).values():
            if isinstance(value, torch.Tensor):
                total += value.numel() * value.element_size()
        layer.free()
    return total


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """What the library allocates for one question."""
    library = importlib.import_module("exllamav3")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(question["config"]), encoding="utf-8")
        Path(folder, "preprocessor_config.json").write_text(json.dumps(question.get("images", {})), encoding="utf-8")
        model = library.Model.from_config(library.Config.from_directory(folder))
    kind: dict[str, Any] = {}
    if question["bits"]:
        keys, values = question["bits"]
        kind = {"layer_type": library.CacheLayer_quant, "k_bits": keys, "v_bits": values}
    places = {"max_batch_size": question["slots"], "max_history": question["history"]}
    cache = library.Cache(model, max_num_tokens=question["tokens"], **places, **kind)
    return {
        "cache": allocated(cache.layers.values()),
        "state": allocated(cache.recurrent_layers.values()),
        "is_recurrent": bool(model.caps.get("recurrent_states")),
        "on_processor": [module.key for module in model if module.caps.get("prefer_cpu")],
    }


if __name__ == "__main__":
    stand_in(EXTENSION)
    sys.stdout.write(json.dumps([answer(question) for question in json.load(sys.stdin)]))
