"""What the built-in models share: weights that are random and the same everywhere, and files that are written whole.

Nothing here needs numpy or torch. Each weight follows from its tensor's name alone, so that a model's bytes can be
promised by a constant.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SPREAD = 0.0866  # uniform in ±this: a standard deviation of 0.05, with which no activation runs away


@dataclass(frozen=True, slots=True)
class RandomTensor:
    """A tensor of a built-in model by its name and shape."""

    name: str
    shape: tuple[int, ...]  # rows first
    first_column: tuple[float, ...] = ()  # in place of the random one
    spread: float = SPREAD

    @property
    def weights(self) -> list[float]:
        """Its weights row by row: uniform in ±``spread`` but for the first column, and 1 in the vector of a norm."""
        count = math.prod(self.shape)
        if len(self.shape) == 1:
            return [1.0] * count
        numbers = struct.unpack(f"<{count}H", hashlib.shake_256(self.name.encode()).digest(2 * count))
        weights = [(number / 32767.5 - 1) * self.spread for number in numbers]
        for row, weight in enumerate(self.first_column):
            weights[row * self.shape[1]] = weight
        return weights


def ensure_file(file: Path, sha256: str, make: Callable[[], bytes]) -> Path:
    """The file, written with what ``make`` gives unless it is there whole."""
    if file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == sha256:
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    # Two runs may write at once: each its own file, and either may have the last word, as both are the same.
    handle, partial = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    with os.fdopen(handle, "wb") as stream:
        stream.write(make())
    Path(partial).chmod(0o644)
    return Path(partial).replace(file)
