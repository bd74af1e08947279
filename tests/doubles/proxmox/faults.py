"""What goes wrong when a test asks for it, and only what goes wrong with real nodes too."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from tests.doubles.proxmox.access import Access
from tests.doubles.proxmox.errors import ApiError, DroppedError, UnreachableError, died
from tests.doubles.proxmox.locks import Locks
from tests.doubles.proxmox.tasks import Tasks


@dataclass
class Drop:
    """Connections that end without an answer: before the work was done, or only the answer is lost."""

    verb: str
    path: re.Pattern[str]
    times: int
    done: bool
    error: ApiError | None = None
    """What the node says instead."""


class Faults:
    """Faults on demand. ``Double.take_down`` switches a node off; a lock of a dead task is in ``guest.config``."""

    def __init__(self, tasks: Tasks, locks: Locks, access: Access) -> None:
        self._tasks = tasks
        self._locks = locks
        self._access = access
        self._drops: list[Drop] = []
        self.keeps_file_systems: set[int] = set()
        """Guests whose disks grow and whose file systems do not."""
        self._lock = threading.Lock()

    def drop(self, verb: str, path: str, *, times: int = 1, done: bool = False) -> None:
        """End the next connections of a call (``path`` is a pattern), with ``done`` only after its work was done."""
        self._drops.append(Drop(verb, re.compile(path), times, done))

    def fail(self, verb: str, path: str, words: str, *, times: int = 1) -> None:
        """Answer the next calls (``path`` is a pattern) with 500 and these words, and do nothing."""
        self._drops.append(Drop(verb, re.compile(path), times, done=False, error=died(words)))

    def give_up(self, verb: str, path: str, status: int, *, times: int = 1, done: bool = False) -> None:
        """Answer the next calls as pveproxy does that waits for a process of the node, with ``done`` after its work."""
        error = UnreachableError(status, "Connection timed out")
        self._drops.append(Drop(verb, re.compile(path), times, done, error))

    def meet(self, verb: str, path: str, *, done: bool) -> None:
        """End the connection here when a test has asked for it."""
        with self._lock:
            for drop in self._drops:
                if drop.times and drop.verb == verb and drop.done == done and drop.path.fullmatch(path):
                    drop.times -= 1
                    raise drop.error or DroppedError

    def slow_tasks(self, kind: str, seconds: float) -> None:
        """Let tasks of a kind (``vzcreate`` ...) wait before they do anything."""
        self._tasks.slow[kind] = seconds

    @contextmanager
    def hold_tasks(self, kind: str) -> Iterator[None]:
        """Let tasks of a kind wait before they do anything, until the end of the block."""
        over = self._tasks.held[kind] = threading.Event()
        try:
            yield
        finally:
            del self._tasks.held[kind]
            over.set()

    def hold_lock(self, vmid: int) -> AbstractContextManager[None]:
        """Hold the lock of a guest's configuration, as a task does that hangs."""
        return self._locks.config(vmid)

    def hold_storage(self, node: str, storage: str) -> AbstractContextManager[None]:
        """Hold the lock of a storage, as an allocation does that takes long."""
        return self._locks.storage(node, storage)

    def expire_tickets(self) -> None:
        """Make all tickets too old."""
        self._access.expire_tickets()
