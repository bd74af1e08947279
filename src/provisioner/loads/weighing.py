"""A model of the file as its GGUF file's head tells it, or, where nothing was read of that, its size and its name."""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.loads.layers import Shape, shape_of
from provisioner.loads.terms import LEAST_MARGIN, MARGIN, MIB, Load
from provisioner.loads.weights import estimated_by_name
from provisioner.models.header import Header

LONGEST_HEAD = 24 * MIB
"""What of a file is no tensor; where more is missing, not all of its tensors are known."""
MARGIN_WORDS = f"{MARGIN:.0%} of its weights, at least {LEAST_MARGIN // MIB} MiB, stand for cache, state and buffers"


def weighed(header: Header | None, size: int, source: str) -> tuple[Shape, int]:
    """The model's shape, and the bytes of its weights; ``size`` is that of its files, 0 where nobody tells it."""
    if header is not None:
        tensors = sum(header.tensors.values())
        is_whole = tensors and size - tensors < LONGEST_HEAD
        return shape_of(header.values, header.tokens), tensors if is_whole else size
    guess = estimated_by_name(source)
    if size or guess is None:
        return Shape("", unread=("nothing is known of it",)), size
    guessed, reason = guess
    return Shape("", unread=(f"nothing is known of it but its name: {reason}",)), guessed


def unread_of(load: Load) -> Iterator[str]:
    """What is guessed of a load that was weighed so, and what stands for it."""
    if load.shape.unread:
        yield f"{load.name}: {'; '.join(load.shape.unread)}; {MARGIN_WORDS}"
    if not load.weights:
        yield f"{load.name}: nobody tells how large its file is, so its weights are missing in the sum"
