"""What one question to the team may use, and what it has used: turns, tokens, money; not its time. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

PER_TOKEN = 4
"""Characters that count as one token where an engine does not say how many there were."""
PRICED = 1_000_000
"""Prices are for so many tokens."""


@dataclass(frozen=True)
class Limits:
    """The most that one question may use; a ``cost`` of None is none that is counted."""

    turns: int
    tokens: int
    seconds: int
    cost: float | None = None


@dataclass(frozen=True)
class Price:
    """What a million tokens cost, those that are read and those that are written."""

    read: float = 0.0
    written: float = 0.0

    def of(self, read: int, written: int) -> float:
        """The cost of so many tokens."""
        return (read * self.read + written * self.written) / PRICED


class LimitReachedError(Exception):
    """A question has used what it may; ``option`` is the name of the limit in the lab's file."""

    def __init__(self, option: str, text: str) -> None:
        super().__init__(text)
        self.option = option


@dataclass
class Budget:
    """What a question has used, against what it may use."""

    limits: Limits
    turns: int = 0
    read: int = 0
    written: int = 0
    cost: float = 0.0
    reached: LimitReachedError | None = field(default=None)
    """The first limit that was reached: what comes through a library may be wrapped in other errors."""

    @property
    def tokens(self) -> int:
        """All tokens, read and written."""
        return self.read + self.written

    def begin_turn(self) -> None:
        """Count one more request to an engine; raise ``LimitReachedError`` where there may be no more."""
        limits = self.limits
        if self.turns >= limits.turns:
            raise self.cut("most_turns", f"its {limits.turns} turns are used")
        self._check(0, 0.0)
        self.turns += 1

    def check_running(self, read: int, written: int, price: Price) -> None:
        """Raise ``LimitReachedError`` where an answer that is still being written has gone too far."""
        self._check(read + written, price.of(read, written))

    def charge(self, read: int, written: int, price: Price) -> None:
        """Count the tokens of a request that has ended."""
        self.read += read
        self.written += written
        self.cost += price.of(read, written)

    def _check(self, tokens: int, cost: float) -> None:
        limits = self.limits
        if self.tokens + tokens >= limits.tokens:
            raise self.cut("most_tokens", f"its {limits.tokens} tokens are used")
        if limits.cost is not None and self.cost + cost >= limits.cost:
            raise self.cut("most_cost", f"it has cost {self.cost + cost:.4f} of at most {limits.cost:g}")

    def cut(self, option: str, text: str) -> LimitReachedError:
        """The error that ends a question at that limit."""
        reached = LimitReachedError(option, text)
        self.reached = self.reached or reached
        return reached


def estimated_tokens(characters: int) -> int:
    """How many tokens a text of that length may have."""
    return (characters + PER_TOKEN - 1) // PER_TOKEN
