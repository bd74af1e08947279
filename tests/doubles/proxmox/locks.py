"""Locks that are files on real nodes: whoever does not get one in time is told its name."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from tests.doubles.proxmox.errors import died


class Locks:
    """One lock for each guest's configuration and each storage of a node."""

    def __init__(self) -> None:
        self.timeout_s = 10.0
        self._locks: defaultdict[tuple[str, str], threading.Lock] = defaultdict(threading.Lock)

    def config(self, vmid: int) -> AbstractContextManager[None]:
        """What everybody holds who changes a guest."""
        return self._held("", f"/run/lock/lxc/pve-config-{vmid}.lock")

    def storage(self, node: str, storage: str) -> AbstractContextManager[None]:
        """What everybody holds who allocates on a storage."""
        return self._held(node, f"/var/lock/pve-manager/pve-storage-{storage}")

    @contextmanager
    def _held(self, node: str, file: str) -> Iterator[None]:
        lock = self._locks[node, file]
        if not lock.acquire(timeout=self.timeout_s):
            raise died(f"can't lock file '{file}' - got timeout")
        try:
            yield
        finally:
            lock.release()
