"""One create, clone or start at a time on each storage of each node: PVE's own locks time out before they are done."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_TURNS: dict[tuple[str, str, str], threading.RLock] = {}
_LOCK = threading.Lock()


@contextmanager
def turn(url: str, node: str, storage: str) -> Iterator[None]:
    """Wait until nobody else of this process works there; nodes and storages go side by side."""
    key = (url.rstrip("/").lower(), node, storage)
    with _LOCK:
        mine = _TURNS.setdefault(key, threading.RLock())
    with mine:
        yield
