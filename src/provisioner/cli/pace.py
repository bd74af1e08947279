"""How often a stream of lines says that one and the same step goes on."""

from __future__ import annotations

import math
from collections.abc import Callable

from provisioner.values.events import ApplyProgress, Event

INTERVAL_S = 10.0


class Pace:
    """Which events are worth a line; a build's count changes every other second, for an hour."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told: dict[str, float] = {}

    def is_due(self, event: Event) -> bool:
        """True but for who waits, and for how far a step is when its target had a line in the last ``INTERVAL_S``."""
        if not isinstance(event, ApplyProgress):
            return True
        now = self._clock()
        if not event.message or (event.goes_on and now - self._told.get(event.target, -math.inf) < INTERVAL_S):
            return False
        self._told[event.target] = now
        return True
