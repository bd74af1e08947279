"""The double as a whole: a world, and a server for each of its nodes."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.doubles.proxmox import certificate
from tests.doubles.proxmox.server import HOST, Listener
from tests.doubles.proxmox.world import World


class Double:
    """A running double. ``ca`` is the certificate that clients verify it with; ``url`` is the first node's."""

    def __init__(self, world: World, files: certificate.Files, port: int = 0) -> None:
        self.world = world
        self.ca = files.ca
        context = files.context()
        self._listeners = {name: Listener(world, node, context) for name, node in world.nodes.items()}
        self._first = next(iter(self._listeners.values()))
        self._first.port = port
        for listener in self._listeners.values():
            listener.open()
        threading.Thread(target=world.keep_telling, daemon=True).start()

    @property
    def url(self) -> str:
        """Where the first node answers."""
        return self._first.url

    @property
    def address(self) -> str:
        """The first node as ``host:port``, as proxmoxer wants it."""
        return f"{HOST}:{self._first.port}"

    @property
    def connections(self) -> int:
        """How many connections the first node has taken so far."""
        return self._first.accepted

    def url_of(self, node: str) -> str:
        """Where a node answers: each can be asked about all."""
        return self._listeners[node].url

    def take_down(self, node: str) -> None:
        """Switch a node off: nobody listens there, and the others cannot reach it."""
        self.world.nodes[node].online = False
        self._listeners[node].close()

    def bring_up(self, node: str) -> None:
        """Switch it on again, at the same address."""
        self._listeners[node].open()
        self.world.nodes[node].online = True

    def close(self) -> None:
        """End tasks and listeners."""
        self.world.close()
        with ThreadPoolExecutor() as pool:  # each waits for its own thread
            list(pool.map(Listener.close, self._listeners.values()))


@contextmanager
def double(world: World | None = None, port: int = 0) -> Iterator[Double]:
    """A double on 127.0.0.1 while the context lasts; the other nodes take free ports."""
    with tempfile.TemporaryDirectory(prefix="pve-double-") as folder:
        running = Double(world or World(), certificate.issue(Path(folder), HOST), port)
        try:
            yield running
        finally:
            running.close()
