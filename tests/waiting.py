"""Waits for what a test expects to become true."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 120.0
"""More than anything here takes on a busy machine: what is true at once costs nothing."""


def wait_until(is_true: Callable[[], object], timeout_s: float = PATIENCE_S, poll_s: float = 0.02) -> None:
    """Return as soon as it is true; ``AssertionError`` when it does not become so in time."""
    deadline = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(poll_s)
