"""How long to wait before the same is tried again: longer each time, never in step with others, and not for ever."""

from __future__ import annotations

import random
import time

FIRST_S = 0.2
LONGEST_S = 8.0


class Backoff:
    """The waits between the attempts of one call, ``patience_s`` in all."""

    def __init__(self, patience_s: float) -> None:
        self._until = time.monotonic() + patience_s
        self._next_s = FIRST_S

    def wait(self) -> bool:
        """Wait; False at once when patience is at its end."""
        pause = self._next_s * random.uniform(0.5, 1.5)  # noqa: S311 - so that two that collided do not again
        self._next_s = min(self._next_s * 2, LONGEST_S)
        if time.monotonic() + pause > self._until:
            return False
        time.sleep(pause)
        return True
