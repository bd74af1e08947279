"""What the encoder of images takes on a card beside its weights: one image, computed at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ANY_SIZE: Mapping[str, int] = {"qwen2vl_merger": 4096, "qwen2.5vl_merger": 4096, "qwen3vl_merger": 4096}
"""Kinds that take images as they are, and the most tokens that one becomes (llama.cpp, ``clip.cpp``)."""
OTHER_SIZES = frozenset({"pixtral", "kimivl", "lightonocr", "lfm2", "cogvlm", "glm4v", "youtuvl", "paddleocr"})
"""Kinds that take images of several sizes by other rules."""
_FLOAT, _COLOURS = 4, 3


def image_buffer(values: Mapping[str, Any]) -> int | None:
    """Bytes for the largest image that a projector with these keys takes; None where they do not tell it.

    As flash attention computes it: llama.cpp 0.5.0 says 322.5 MiB for 92 by 92 patches of Qwen3-VL 2B's, 322.4 by this
    sum. Layers whose vectors are handed on besides (``is_deepstack_layers``) keep them until the end.
    """

    def number(name: str) -> int:
        value = values.get(f"clip.vision.{name}", 0)
        return max(value, 0) if isinstance(value, int) else 0

    kind = str(values.get("clip.vision.projector_type") or values.get("clip.projector_type", ""))
    patch, width, inner = number("patch_size"), number("embedding_length"), number("feed_forward_length")
    patches = (number("image_size") // max(patch, 1)) ** 2
    if kind in ANY_SIZE:
        patches = ANY_SIZE[kind] * (number("spatial_merge_size") or 2) ** 2
    if kind in OTHER_SIZES or 0 in (patch, width, inner, patches):
        return None
    listed = values.get("clip.vision.is_deepstack_layers")
    handed_on = sum(map(bool, listed)) if isinstance(listed, list) else 0
    numbers_of_a_patch = max(inner + 2 * width, 4 * width) + handed_on * width + _COLOURS * patch**2
    return patches * numbers_of_a_patch * _FLOAT
