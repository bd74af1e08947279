"""The list of tensors in a GGUF file's head: where each begins, and so how many bytes it takes, whatever its type."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from provisioner.models.gguf.reading import Reader
from provisioner.models.header import GgufError

_DIMENSIONS = 4
_MOST = 1 << 17
"""No model of today has a tenth of so many; a head that says more is damaged, and not worth the memory."""


@dataclass
class Tensors:
    """What the list says. ``data``: where the first tensor begins; ``offsets`` are counted from there."""

    offsets: dict[str, int] = field(default_factory=dict)
    parameters: int = 0
    data: int = 0

    @property
    def last_offset(self) -> int:
        """Where the last one begins."""
        return max(self.offsets.values(), default=0)


def read_tensors(reader: Reader, count: int, alignment: Any) -> Tensors:
    """The list, which follows the keys; ``GgufError`` when it cannot be one."""
    if not isinstance(alignment, int) or alignment <= 0:
        raise GgufError(f"its alignment is {alignment}")
    if count > _MOST:
        raise GgufError(f"its head counts {count} tensors, more than any model has")
    tensors = Tensors()
    for _ in range(count):
        name = reader.text()
        tensors.parameters += _parameters(reader, name)
        reader.take(4)
        tensors.offsets[name] = reader.number("Q")
    tensors.data = -(-reader.at // alignment) * alignment
    return tensors


def _parameters(reader: Reader, name: str) -> int:
    """How many weights the tensor has: the product of its dimensions."""
    dimensions = reader.number("I")
    if dimensions > _DIMENSIONS:
        raise GgufError(f"its tensor {name} has {dimensions} dimensions")
    return math.prod(reader.number("Q") for _ in range(dimensions))


def sizes_of(tensors: Tensors, size: int | None) -> dict[str, int]:
    """Bytes of each tensor, up to where the next begins; ``size``: the file's, without it the last is left out."""
    ordered = sorted((offset, name) for name, offset in tensors.offsets.items())
    sizes = {name: after - offset for (offset, name), (after, _) in pairwise(ordered)}
    if ordered and size is not None:
        offset, name = ordered[-1]
        sizes[name] = size - tensors.data - offset
    return sizes
