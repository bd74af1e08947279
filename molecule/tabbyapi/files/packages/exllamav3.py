"""As much of exllamav3 as the stand-in uses: a cache that fits or not, a generator that says how it drafts."""

from __future__ import annotations

from typing import Any


class Cache:
    """So many tokens."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens

    def fit(self, room: int) -> None:
        """Raise what exllamav3/model/model_ls.py raises when the cards are full."""
        if self.tokens > room:
            raise RuntimeError("Insufficient VRAM in split for model and cache")


class Generator:
    """Counts its drafts as exllamav3/generator/generator.py does: 0 tokens that are asked for are obeyed."""

    def __init__(
        self, cache: Cache, draft_model: Any = None, num_draft_tokens: int | None = None, ngram_match_min: int = 0
    ) -> None:
        self.cache = cache
        default = 4 if num_draft_tokens is None else num_draft_tokens
        drafts = default if draft_model or ngram_match_min else 0
        print(f"drafting {drafts} tokens after {ngram_match_min} that match", flush=True)  # noqa: T201  # for the tests


class AsyncGenerator:
    """Passes everything on."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.generator = Generator(*arguments, **options)
