"""What people want a model for, and which context that takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Use:
    """What a model is for: the context that it should have, and whether it has to see."""

    context: int
    sees: bool = False


USES: Mapping[str, Use] = {
    "chat": Use(24_576),
    "code": Use(32_768),
    "long": Use(131_072),
    "vision": Use(8_192, sees=True),
}
