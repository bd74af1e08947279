"""Whose turn it is among engines of which one at a time has the card: what one of them knows of it.

Nobody decides for all. Who wants the card draws a ticket and asks each of the others for permission; each gives it
unless it has the card itself or wants it with an older ticket (Ricart and Agrawala, 1981). All of this is in memory:
who was started anew has forgotten what it gave and got, and so the first that asks wins.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

ASKED_S = 5.0
"""So long somebody counts as waiting who has asked: who waits asks again several times a second."""
LARGEST_COUNT = 2**53


@dataclass(frozen=True, order=True, slots=True)
class Ticket:
    """A place in the queue: all count tickets together, and of two with one number the first in the list wins."""

    count: int
    place: int


@dataclass(frozen=True, slots=True)
class Question:
    """What one asks another: for permission, by its ticket's number, or if it ``holds`` the card whether both do.

    ``round`` tells an answer that has come too late; it stays with who asks.
    """

    count: int
    holds: bool
    round: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether permission is given, whether who answers has the card itself, and the highest number that it knows."""

    granted: bool
    holds: bool
    count: int


@dataclass
class Turn:
    """The turn as the member ``place`` of ``members`` sees it. Several threads may use it."""

    place: int
    members: int
    holds: bool
    """Whether it is this one's turn: from when all others have given permission until ``ended``."""
    clock: Callable[[], float] = time.monotonic
    _count: int = 0
    _ticket: Ticket | None = None
    _permissions: set[int] = field(default_factory=set)
    _rounds: dict[int, int] = field(default_factory=dict)
    _asked: dict[int, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def others(self) -> list[int]:
        """The places of the others."""
        return [place for place in range(self.members) if place != self.place]

    def want(self) -> list[int]:
        """Ask for the turn, unless that was done or it is ours; the others whose permission is missing."""
        with self._lock:
            if self.holds:
                return []
            if self._ticket is None:
                self._count += 1
                self._ticket = Ticket(self._count, self.place)
                self._permissions.clear()
            return [place for place in self.others if place not in self._permissions]

    def forget(self) -> None:
        """Want it no more."""
        with self._lock:
            self._ticket = None

    def question(self, other: int) -> Question:
        """What to ask another one now."""
        with self._lock:
            count = self._ticket.count if self._ticket else self._count
            return Question(count, self.holds, self._rounds.get(other, 0))

    def answer(self, other: int, count: int, *, holds: bool) -> Answer:
        """What to say to another one that asks with a ticket of that number, or says that it has the card itself."""
        with self._lock:
            self._count = max(self._count, count)
            return Answer(self._permits(other, count, holds=holds), self.holds, self._count)

    def _permits(self, other: int, count: int, *, holds: bool) -> bool:
        if self.holds:
            # Two that have the card have met again: the later one in the list makes way.
            if not holds or other < self.place:
                self._asked[other] = self.clock()
            return False
        if not holds and self._ticket is not None and self._ticket < Ticket(count, other):
            return False
        # A permission that this one had of the other is void by that, also one on its way: the other may forget it.
        self._permissions.discard(other)
        self._rounds[other] = self._rounds.get(other, 0) + 1
        return not holds

    def learn(self, other: int, asked: Question, answer: Answer) -> None:
        """Take up what another one said to a question; the turn is ours when it was the last permission missing."""
        with self._lock:
            self._count = max(self._count, answer.count)
            if asked.holds and self.holds and answer.holds and other < self.place:
                self._asked[other] = self.clock()
            if answer.granted:
                self._take(other, asked)

    def miss(self, other: int, asked: Question) -> None:
        """Do without the permission of one that is not there."""
        with self._lock:
            self._take(other, asked)

    def _take(self, other: int, asked: Question) -> None:
        is_of_now = self._ticket is not None and asked.count == self._ticket.count
        if self.holds or not is_of_now or asked.round != self._rounds.get(other, 0):
            return
        self._permissions.add(other)
        if self._permissions.issuperset(self.others):
            self.holds, self._ticket = True, None
            self._asked.clear()

    def waiting(self) -> list[int]:
        """The others that wait for it to end, by their places."""
        with self._lock:
            latest = self.clock() - ASKED_S
            return sorted(place for place, asked in self._asked.items() if asked >= latest)

    def ended(self) -> None:
        """It has let the card go."""
        with self._lock:
            self.holds = False
            self._asked.clear()
