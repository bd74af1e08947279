"""``Header``: what the head of a model's file says of it; ``GgufError``: why it cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PROJECTOR = "clip"
"""The architecture of a file that turns images into tokens of another model; such a file answers nothing itself."""
KIND = "general.type"
"""The key that says what a file is, where it is no whole model: ``adapter``, ``imatrix``, ``mmproj``."""
VOCABULARY = "vocabulary"
"""The kind of a file without weights; no file says that of itself, and llama.cpp's converter makes such ones."""
HELPERS = {
    PROJECTOR: "it only turns images into tokens",
    "adapter": "it is an adapter (LoRA), which changes another model",
    "imatrix": "it only says which weights of another model matter (imatrix)",
    "controlvector": "it only steers another model (a control vector)",
    VOCABULARY: "it has no weights, and a vocabulary at most",
}
"""The use of files that only help another model, by their kind or their architecture."""
DRAFTS = frozenset({"dflash", "eagle3", "gemma4-assistant"})
"""Architectures of files that only draft what another model is to say (llama.cpp 0.5.0)."""


class GgufError(ValueError):
    """The file is no GGUF, or not a whole one; the text says how that was seen."""


@dataclass(frozen=True, slots=True)
class Header:
    """One file's model. A number is 0 where the file does not say it or it has no meaning for its architecture."""

    architecture: str
    layers: int = 0
    context: int = 0
    key_size: int = 0
    value_size: int = 0
    experts: int = 0
    parts: int = 1
    values: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """All its numbers, and its short lists of numbers, by the file's own names."""
    tokens: int = field(default=0, compare=False)
    """Items of its vocabulary."""
    tensors: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Bytes of each tensor of this file; the last one is left out where the file's end is not known."""
    parameters: int = field(default=0, compare=False)
    """Weights of this file, counted."""

    @property
    def bits(self) -> float:
        """Bits of a weight, on average; 0 where its file does not say how many it has."""
        return 8 * sum(self.tensors.values()) / self.parameters if self.parameters else 0.0

    @property
    def helps(self) -> str:
        """Return what the file does for another model, in words; empty where it is a model itself."""
        words = HELPERS.get(self.architecture, "")
        words = HELPERS.get(str(self.values.get(KIND)), words)
        return "it only drafts for another model" if not words and self._only_drafts else words

    @property
    def _only_drafts(self) -> bool:
        drafting = self.values.get(f"{self.architecture}.nextn_predict_layers", 0)
        if self.architecture in DRAFTS or drafting == self.layers > 0:
            return True
        blocks = [name for name in self.tensors if name.startswith("blk.")]
        is_whole = bool(blocks) and self.parts == 1
        return is_whole and not any(name.startswith("blk.0.") for name in blocks)

    @property
    def is_projector(self) -> bool:
        """Whether it belongs beside a model, as its eye."""
        return self.architecture == PROJECTOR
