"""What a gateway passes on: its aliases, the engines behind them, and what an engine is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CHAT, EMBEDDING, RERANK = "chat", "embedding", "rerank"
"""What an engine is asked for: an answer in words, a vector for each text, or scores of documents."""


@dataclass(frozen=True, slots=True)
class RoutedEngine:
    """A server that answers completions under ``name``, in this lab or elsewhere; several may have one name."""

    name: str
    model: str
    """Provider and model, such as ``openai/qwen``."""
    is_ours: bool
    """Whether it belongs to this lab, so that asking it costs nothing."""
    api_base: str = ""
    """Its base URL; empty for the provider's own."""
    api_key: Any = None
    """The key that it wants, a ``Secret``, or its text in a play; None where it wants none."""
    answers: str = CHAT
    """What it is asked for, as far as that is known: of an engine elsewhere nobody says it."""


@dataclass(frozen=True, slots=True)
class RoutedAlias:
    """An alias of a gateway with the names of its engines, the primary first; what is None is as for the gateway."""

    name: str
    engines: tuple[str, ...]
    timeout: float | None = None
    """Seconds that each engine has for a whole answer."""
    stream_timeout: float | None = None
    """Seconds that each engine has for each part of a streamed answer."""
    retries: int | None = None
    """How often each engine is asked again before the next one."""
    context_window_fallbacks: tuple[str, ...] = ()
    """The engines for what is too long for the alias' own; empty where the file names none."""
    thinking: str | None = None
    """``on`` or ``off``: whether its engines think before they answer."""
    words: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """What is said to each engine in the body of a request, by its name: one mapping for each server of that name."""
