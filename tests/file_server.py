"""A server of one file that has every way of a real one to be difficult: cuts, stalls, redirects, refusals."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from typing import Any

from tests.waiting import PATIENCE_S

BLOCK = 1 << 14
Page = tuple[int, Mapping[str, str], bytes]


@dataclass(frozen=True)
class Seen:
    """One request."""

    path: str
    headers: Mapping[str, str]


@dataclass
class FileServer:
    """What the server holds and how it behaves; ``seen`` are the requests, in their order."""

    content: bytes = b""
    etag: str = '"one"'
    ranges: bool = True
    length: bool = True
    cuts: list[int] = field(default_factory=list)
    """After how many bytes each of the next answers ends without a word."""
    stalls: list[int] = field(default_factory=list)
    """After how many bytes each of the next answers stands still, until the server ends."""
    pace_s: float = 0.0
    """How long each block of an answer takes."""
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """Status and headers of the next answers, without the file."""
    pages: dict[str, Callable[[Seen], Page]] = field(default_factory=dict)
    """What is answered at other paths."""
    seen: list[Seen] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    address: str = ""

    def ranges_asked(self) -> list[str | None]:
        """The ``Range`` of each request."""
        return [one.headers.get("Range") for one in self.seen]

    def first_byte(self, headers: Mapping[str, str]) -> int:
        """Where the answer to a request begins."""
        asked = headers.get("Range", "")
        is_fresh = headers.get("If-Range", self.etag) == self.etag
        return int(asked.removeprefix("bytes=").partition("-")[0]) if asked and self.ranges and is_fresh else 0

    def file_headers(self, start: int) -> dict[str, str]:
        """What is said of the file from that byte on."""
        total = len(self.content)
        headers = {"ETag": self.etag} | ({"Accept-Ranges": "bytes"} if self.ranges else {})
        headers |= {"Content-Length": str(total - start)} if self.length else {}
        return headers | ({"Content-Range": f"bytes {start}-{total - 1}/{total}"} if start else {})

    def send(self, content: bytes, write: Callable[[bytes], Any]) -> None:
        """Send the file's bytes, as far and as fast as this answer goes."""
        stall = self.stalls.pop(0) if self.stalls else None
        content = content[: self.cuts.pop(0) if self.cuts else None]
        for at in range(0, len(content), BLOCK):
            write(content[:stall][at : at + BLOCK])
            if stall is not None and at + BLOCK >= stall:
                self.ended.wait(PATIENCE_S)
                return
            time.sleep(self.pace_s)


class _Handler(BaseHTTPRequestHandler):
    held: FileServer

    def do_GET(self) -> None:
        seen = Seen(self.path, dict(self.headers.items()))
        self.held.seen.append(seen)
        page = self.held.pages.get(self.path.partition("?")[0])
        start = self.held.first_byte(seen.headers)
        if page is not None:
            self.give(*page(seen))
        elif self.held.answers:
            self.give(*self.held.answers.pop(0), b"")
        elif start and start >= len(self.held.content):
            self.give(416, {}, b"")
        else:
            self.begin(206 if start else 200, self.held.file_headers(start))
            self.held.send(self.held.content[start:], self.wfile.write)

    def give(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.begin(status, {**headers, "Content-Length": str(len(body))})
        self.wfile.write(body)

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client that leaves is no news."""


@contextmanager
def serving(server: FileServer, host: str = "127.0.0.1", tls: SSLContext | None = None) -> Iterator[FileServer]:
    """Run it; its ``address`` is where its file is."""
    with _Http((host, 0), type("Handler", (_Handler,), {"held": server})) as http:
        if tls is not None:
            http.socket = tls.wrap_socket(http.socket, server_side=True)
        server.address = f"{'https' if tls else 'http'}://{host}:{http.server_address[1]}/models/tiny.gguf"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.ended.set()
            http.shutdown()
            thread.join(PATIENCE_S)


@contextmanager
def dripping(sent: bytes, pace_s: float = 0.02) -> Iterator[str]:
    """A server that begins with ``sent`` and goes on byte by byte for ever; its address."""
    ended = threading.Event()

    def drip(client: socket.socket) -> None:
        with closing(client), suppress(OSError):
            client.sendall(sent)
            while not ended.wait(pace_s):
                client.sendall(b"H")

    def serve() -> None:
        with suppress(OSError):
            while True:
                client = listening.accept()[0]
                threading.Thread(target=drip, args=(client,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            ended.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE_S)
