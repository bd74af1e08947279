"""Makes chunks of whole sentences, as long as the settings want them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from api.src.core.config import settings


def chunks(text: str) -> Iterator[str]:
    """Sentences put together until there are enough tokens; a letter stands for a token."""
    current: list[str] = []
    count = 0
    for sentence in (one.strip() for one in re.split(r"(?<=[.!?;:])\s+", text)):
        length = len(sentence)
        if (
            current
            and count + length > settings.target_max_tokens
            and (count >= settings.target_min_tokens or count + length > settings.absolute_max_tokens)
        ):
            yield " ".join(current)
            current, count = [], 0
        if sentence:
            current.append(sentence)
            count += length
    if current:
        yield " ".join(current)
