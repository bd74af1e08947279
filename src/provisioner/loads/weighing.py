"""A model as its GGUF file's head tells it, else its size and its name; and what sums of models do not hold."""

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
    if not load.flash_attention and load.shape.widths is None:
        yield f"{load.name}: what attention takes without flash attention is not counted"


def uncounted_of_folder(load: Load, header: Header | None, *, sees: bool, drafts: bool) -> Iterator[str]:
    """What a sum leaves out, or holds too much, of a model that is a folder; ``sees``: its encoder is loaded.

    ``drafts``: its own component for drafts is used.
    """
    has_encoder = header is not None and header.values.get("has_encoder")
    if has_encoder and sees:
        yield f"{load.name}: what images take while they are computed is not counted"
    elif has_encoder:
        yield f"{load.name}: its encoder of images, which is not loaded, is counted with its weights"
    if drafts:
        yield f"{load.name}: what its component for drafts keeps is not counted"
