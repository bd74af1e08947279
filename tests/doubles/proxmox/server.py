"""HTTPS: one listener a node. Reason phrases go out as PVE sends them; a dropped call ends without a byte.

Connections live as in PVE: one is kept after a success, for a hundred requests or five seconds of silence; any error
closes it (pve-http-server ``AnyEvent.pm``, pve-manager ``pveproxy.pm``).
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from tests.doubles.proxmox.api import Answer, Request, answer
from tests.doubles.proxmox.errors import DroppedError
from tests.doubles.proxmox.world import Node, World
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

HOST = "127.0.0.1"
POLL_S = 0.02
KEPT_REQUESTS = 100
SILENCE_S = 5.0
ERRORS = 400


class Handler(WSGIRequestHandler):
    """One connection: PVE's rules of how long it lasts, the server's name as PVE gives it, no log on the terminal."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    timeout = SILENCE_S

    def setup(self) -> None:
        """Count its requests."""
        super().setup()
        self._left = KEPT_REQUESTS

    def run_wsgi(self) -> None:
        """Answer one request; werkzeug's own closes every connection, and waits 10 ms before it does."""
        self._left -= 1
        self.environ = environ = self.make_environ()
        body: list[bytes] = []
        try:
            body.extend(self.server.app(environ, self._begin))
        except ConnectionError:
            self.close_connection = True
            return
        self.end_headers()
        self.wfile.write(b"".join(body))

    def _begin(self, status: str, headers: list[tuple[str, str]], _: Any = None, /) -> Callable[[bytes], object]:
        code, _, reason = status.partition(" ")
        self.close_connection = self.close_connection or self._left <= 0 or int(code) >= ERRORS
        self.send_response(int(code), reason)
        for name, value in [*headers, ("Connection", "close" if self.close_connection else "Keep-Alive")]:
            self.send_header(name, value)
        return self.wfile.write

    def version_string(self) -> str:
        """PVE's own."""
        return "pve-api-daemon/3.0"

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - werkzeug's name
        """Say nothing: tests read answers."""


class Server(ThreadedWSGIServer):
    """TLS begins in the thread of its connection, so that a client that says nothing holds up nobody."""

    def __init__(self, port: int, app: WSGIApplication, context: ssl.SSLContext) -> None:
        super().__init__(HOST, port, app, Handler)
        self.accepted = 0
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.ssl_context = context
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Note the connection."""
        with self._lock:
            self.accepted += 1
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """It is at its end."""
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def cut(self) -> None:
        """End all connections, as a machine does that loses its power; TLS is not asked."""
        with self._lock:
            for one in self._open:
                with suppress(OSError):  # its client was faster
                    socket.socket.shutdown(one, socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or does not trust the certificate, is no error of the server."""
        import sys

        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Listener:
    """One node's address: up until ``close``, up again on the same port after ``open``."""

    def __init__(self, world: World, node: Node, context: ssl.SSLContext) -> None:
        self._app = application(world, node)
        self._context = context
        self._thread: threading.Thread | None = None
        self._before = 0
        self.port = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"https://{HOST}:{self.port}"

    @property
    def accepted(self) -> int:
        """How many connections it has taken."""
        return self._before + self._server.accepted

    def open(self) -> None:
        """Listen."""
        self._before = self.accepted if hasattr(self, "_server") else 0
        self._server = Server(self.port, self._app, self._context)
        self.port = self._server.port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_S,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listen no longer: whoever connects is refused."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join(PATIENCE_S)
            self._server.cut()
            self._thread = None


def application(world: World, node: Node) -> Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]:
    """A node as a WSGI application."""

    def called(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        time.sleep(world.latency_s)
        try:
            found = answer(world, node, _request(environ))
        except DroppedError:
            connection: socket.socket = environ["werkzeug.socket"]
            connection.shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError from None
        start_response(_status(found), _headers(found))
        return [found.body]

    return called


def _request(environ: WSGIEnvironment) -> Request:
    headers = {
        name.removeprefix("HTTP_").replace("_", "-").lower(): value
        for name, value in environ.items()
        if name.startswith("HTTP_") or name == "CONTENT_TYPE"
    }
    path, _, query = environ["RAW_URI"].partition("?")
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    return Request(environ["REQUEST_METHOD"], path, query, headers, body)


def _status(found: Answer) -> str:
    """Status and reason; WSGI wants bytes beyond ASCII one to a character."""
    return f"{found.status} {found.reason}".encode().decode("latin-1")


def _headers(found: Answer) -> list[tuple[str, str]]:
    headers = [("Content-Length", str(len(found.body))), ("Cache-Control", "max-age=0"), ("Pragma", "no-cache")]
    return [("Content-Type", found.content_type), *headers] if found.content_type else headers
