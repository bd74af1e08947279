"""What a model of Kokoro's holds in memory while it computes a text: ``activations.py FOLDER SYMBOLS FRAMES...``.

FOLDER has ``kokoro-v1_0.pth`` and its ``config.json``. Prints a line of JSON for each number of frames: the parameters,
the bytes of the weights, and the most bytes of other tensors that lived at the same time. Runs with the role's venv.
"""

from __future__ import annotations

import gc
import json
import sys
import weakref
from pathlib import Path
from typing import Any

import torch
from kokoro import KModel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

LONGEST_DURATION = 50
"""Frames that one symbol may take at most (``max_dur`` of ``config.json``)."""


class LiveTensors(TorchDispatchMode):
    """Counts the bytes of the tensors that operations have made and that still live.

    What an operation takes and gives back within itself (a workspace of the CPU's library) is in no tensor.
    """

    def __init__(self) -> None:
        """Nothing lives yet."""
        super().__init__()
        self.living: dict[int, int] = {}
        self.now = 0
        self.peak = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute the operation, then count what it has made."""
        del types
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._count(leaf.untyped_storage())
        return result

    def _count(self, storage: Any) -> None:
        """Add a storage that is new, and take it off again when it dies."""
        key = storage.data_ptr()
        if key in self.living:
            return
        self.living[key] = storage.nbytes()
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        """Take a storage off that has died."""
        self.now -= self.living.pop(key, 0)


def loaded(folder: Path) -> Any:
    """The real library's model, in the numbers in which the server computes."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    model = KModel(repo_id="hexgrad/Kokoro-82M", config=config, model=str(folder / "kokoro-v1_0.pth"))
    return model.eval()


def speaks_for(model: Any, frames_a_symbol: float) -> None:
    """Give each symbol of random weights so many frames of 25 ms."""
    share = torch.tensor(frames_a_symbol / LONGEST_DURATION)
    linear = model.predictor.duration_proj.linear_layer
    torch.nn.init.zeros_(linear.weight)
    torch.nn.init.constant_(linear.bias, torch.log(share / (1 - share)).item())


def measured(model: Any, symbols: int, frames_a_symbol: int) -> dict[str, int]:
    """The most bytes that live beside the weights while a text of ``symbols`` is spoken, and how long it was."""
    speaks_for(model, frames_a_symbol)
    token = torch.full((1, symbols + 2), 43, dtype=torch.long)  # one more at either end, as the library adds them
    token[0, 0] = token[0, -1] = 0
    voice = torch.randn(1, 256) / 10
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    weights |= {buffer.untyped_storage().data_ptr() for buffer in model.buffers()}
    with LiveTensors() as live:
        live.living = dict.fromkeys(weights, 0)
        audio, durations = model.forward_with_tokens(token, voice, 1)
    return {"frames": int(durations.sum()), "samples": int(audio.numel()), "peak": live.peak}


def main(folder: Path, symbols: int, frames: list[int]) -> None:
    """Measure each."""
    model = loaded(folder)
    tensors = [*model.parameters(), *model.buffers()]
    kept = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "weights": sum(tensor.numel() * tensor.element_size() for tensor in tensors),
    }
    for number in frames:
        found = measured(model, symbols, number)
        sys.stdout.write(json.dumps({**kept, "symbols": symbols, **found}) + "\n")
        sys.stdout.flush()
        gc.collect()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), list(map(int, sys.argv[3:])))
