"""Servers of HTTP that tests run beside themselves: they print nothing, and end with the block that needs them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseServer
from typing import Any, TypeVar

from tests.waiting import PATIENCE_S

Server = TypeVar("Server", bound=BaseServer)
HERE = ("127.0.0.1", 0)
"""A free port of this machine."""


class QuietHandler(BaseHTTPRequestHandler):
    """Reads and answers a request."""

    def content(self) -> bytes:
        """Return the body of the request."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def give(self, status: int, body: bytes = b"", *headers: tuple[str, str]) -> None:
        """Give a whole answer of a known length."""
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing: hundreds of lines would hide why a test failed."""


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def served(server: Server) -> Iterator[Server]:
    """Have the server answer until the block ends."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(PATIENCE_S)


@contextmanager
def files_served(folder: Path, place: tuple[str, int] = HERE) -> Iterator[str]:
    """Serve the files of a folder; the address."""
    with served(ThreadingHTTPServer(place, partial(_Files, directory=str(folder)))) as server:
        yield f"http://{place[0]}:{server.server_port}"
