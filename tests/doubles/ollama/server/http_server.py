"""Requests and answers in the way of Go's server and of gin."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import re
import socket
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.doubles.ollama.server.answering import App
from tests.doubles.ollama.server.errors import ClientGone, Refused
from tests.doubles.ollama.server.golang import console, json_line, log
from tests.doubles.ollama.server.limits import JSON_BYTES, PIECE
from tests.doubles.ollama.server.making import Progress
from tests.doubles.ollama.server.scheduler import Waiting


class Call:
    """One request and its answer; no key is ever asked for: an Authorization header is not even read."""

    def __init__(self, handler: Handler, path: str, last: str) -> None:
        self.path = path
        self.last = last
        self.form: Callable[[int, str], dict[str, Any]] = native_error
        self.waiting = Waiting(handler.connection)
        self._handler = handler

    def json(self, *, empty: str = "missing request body") -> dict[str, Any]:
        """The body, which upstream takes for JSON whatever its type says."""
        content = b"".join(self._handler.body_pieces(JSON_BYTES))
        if not content.strip():
            raise Refused(400, empty)
        try:
            body = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise Refused(400, f"invalid character: {error}") from error
        if not isinstance(body, dict):
            raise Refused(400, f"json: cannot unmarshal {type(body).__name__} into Go value")
        return body

    def body_pieces(self, most: int) -> Iterator[bytes]:
        """The body as it comes."""
        return self._handler.body_pieces(most)

    def answer(self, value: Any, status: int = 200, kind: str = "application/json; charset=utf-8") -> None:
        """Answer with one JSON value."""
        content = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        self._handler.whole(status, content, kind)

    def text(self, status: int, text: str = "", kind: str = "text/plain") -> None:
        """Answer with a text, or with nothing."""
        self._handler.whole(status, text.encode(), kind)

    def lines(self, events: Iterable[dict[str, Any]]) -> None:
        """Answer with a line of JSON for each event.

        server/routes.go:2097, streamResponse: nothing is sent before the first event, so an error that is first has
        a status of its own; a later one is only a line of an answer that began with 200.
        """
        pieces = (json_line(event) for event in events)
        self.stream(pieces, "application/x-ndjson", lambda message: json_line({"error": message}))

    def progress(self, events: Progress, *, streamed: bool) -> None:
        """Answer with progress: all of it, or only the last of it (server/routes.go:2070, waitForStream)."""
        if streamed:
            self.lines(events)
            return
        latest: dict[str, Any] = {}
        for event in events:
            latest = event
        self.answer(latest, kind="application/json")

    def stream(self, pieces: Iterable[bytes], kind: str, failed: Callable[[str], bytes]) -> None:
        """Answer in pieces; their end is marked only if they end by themselves."""
        began = False
        try:
            for piece in pieces:
                if not began:
                    self._handler.begin_stream(kind)
                    began = True
                self._handler.piece(piece)
        except Refused as refused:
            if not began:
                raise
            self._handler.piece(failed(refused.message))
        self._handler.end_stream()

    def refuse(self, refused: Refused) -> None:
        """Answer with an error in the words of this route's protocol."""
        self.answer(self.form(refused.status, refused.message), refused.status)


def native_error(_status: int, message: str) -> dict[str, Any]:
    """An error as ``/api`` tells it."""
    return {"error": message}


def openai_error(status: int, message: str) -> dict[str, Any]:
    """An error as ``/v1`` tells it (openai/openai.go, NewError)."""
    kind = {400: "invalid_request_error", 404: "not_found_error"}.get(status, "api_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


Route = Callable[[App, Call], None]
Routes = Mapping[str, Mapping[str, Route]]
"""What answers, by path and method; a path that ends in ``:`` stands for all with another last part."""


def route_of(path: str, routes: Routes) -> tuple[str, str]:
    """The route of a path and the last part of it, where that is free."""
    if path in routes:
        return path, ""
    folder, _, last = path.rpartition("/")
    return (f"{folder}/:", last) if last and f"{folder}/:" in routes else ("", "")


# Go's IsPrivate: less than Python's, which counts networks of examples and links too.
_PRIVATE = [ipaddress.ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")]


def host_allowed(header: str, listening: str) -> bool:
    """Whether a Host header is a local name (server/routes.go:1803, allowedHostsMiddleware)."""
    # Only a loopback address is guarded so: with OLLAMA_HOST=0.0.0.0 every name, and every rebound one, gets in.
    if not ipaddress.ip_address(listening).is_loopback:
        return True
    host = re.sub(r":\d*$", "", header) if re.fullmatch(r"(\[.*\]|[^:]*):\d*", header) else header
    host = host.strip("[]").lower()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        own = {"", "localhost", socket.gethostname().lower()}
        return host in own or host.endswith((".localhost", ".local", ".internal"))
    private = any(address in network for network in _PRIVATE if network.version == address.version)
    return private or address.is_loopback or address.is_unspecified or _is_own(str(address))


def _is_own(address: str) -> bool:
    """Whether this machine has the address: only then can a socket be bound to it (server/routes.go:1755)."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.bind((address, 0))
        return True
    return False


class Handler(BaseHTTPRequestHandler):
    """Reads requests and sends answers in the way of Go's server and of gin."""

    protocol_version = "HTTP/1.1"
    timeout = 300
    server: Server
    _unread = False
    _status = 0

    def handle_one_request(self) -> None:
        """Answer one request; a client that went away is no error."""
        with contextlib.suppress(ConnectionError, TimeoutError):
            super().handle_one_request()
            return
        self.close_connection = True

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):
            return self._request
        raise AttributeError(name)

    def _request(self) -> None:
        started = time.monotonic()
        self._status = 0
        self._unread = bool(int(self.headers.get("Content-Length") or 0))
        path = urllib.parse.unquote(self.path.partition("?")[0]) or "/"
        route, last = route_of(path, self.server.routes)
        call = Call(self, path, last)
        try:
            if self._host_allowed():
                self._routed(call, route)
            else:
                self.whole(403, b"", "")
        except Refused as refused:
            call.refuse(refused)
        except (ClientGone, ConnectionError, TimeoutError):
            self.close_connection = True
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            self._mistyped(call, error)
        finally:
            call.waiting.end()
        took = f"{(time.monotonic() - started) * 1000:.3f}ms"
        client = self.client_address[0]
        stamp = time.strftime("%Y/%m/%d - %H:%M:%S")
        console(f'[GIN] {stamp} | {self._status} | {took} | {client} | {self.command} "{path}"')

    def _mistyped(self, call: Call, error: Exception) -> None:
        """A body whose parts are of other types than Go's structs is refused; the stand-in meets them as it goes."""
        log("recovery.go:40", "body of a wrong shape", "ERROR", error=repr(error))
        if self._status:
            self.close_connection = True
        else:
            call.refuse(Refused(400, f"json: cannot unmarshal the body: {error}"))

    def _host_allowed(self) -> bool:
        return host_allowed(self.headers.get("Host") or "", str(self.server.server_address[0]))

    def _routed(self, call: Call, route: str) -> None:
        if call.path.startswith("/v1/"):
            call.form = openai_error
        methods = self.server.routes.get(route, {})
        if self.command in methods:
            methods[self.command](self.server.app, call)
        elif methods:
            call.text(405, "405 method not allowed")
        else:
            call.text(404, "404 page not found")

    def body_pieces(self, most: int) -> Iterator[bytes]:
        """The body, piece by piece; one without a length is refused, as no client of ours sends any."""
        self._unread = False
        if "Transfer-Encoding" in self.headers:
            self.close_connection = True
            raise Refused(501, "the stand-in reads no body in chunks")
        left = int(self.headers.get("Content-Length") or 0)
        if left > most:
            self.close_connection = True
            raise Refused(413, "http: request body too large")
        while left > 0:
            piece = self.rfile.read(min(left, PIECE))
            if not piece:
                raise ClientGone
            left -= len(piece)
            yield piece

    def _drain(self) -> None:
        """Read a short body that nobody wanted, as net/http does; after a long one the connection ends."""
        if not self._unread:
            return
        if int(self.headers.get("Content-Length") or 0) > 256 << 10:
            self.close_connection = True
            return
        for _ in self.body_pieces(256 << 10):
            pass

    def _head(self, status: int, kind: str, more: Mapping[str, str]) -> None:
        self._drain()
        self._status = status
        self.send_response(status)
        closing = {"Connection": "close"} if self.close_connection else {}
        for name, value in {"Content-Type": kind, **more, **closing}.items():
            if value:
                self.send_header(name, value)
        self.end_headers()

    def whole(self, status: int, content: bytes, kind: str) -> None:
        """Send an answer of known length."""
        self._head(status, kind if content else "", {"Content-Length": str(len(content))})
        if self.command != "HEAD":
            self.wfile.write(content)

    def begin_stream(self, kind: str) -> None:
        """Send the head of an answer in chunks."""
        self._head(200, kind, {"Transfer-Encoding": "chunked"})

    def piece(self, content: bytes) -> None:
        """Send one chunk."""
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))

    def end_stream(self) -> None:
        """Send the mark that the answer is whole."""
        self.wfile.write(b"0\r\n\r\n")

    def version_string(self) -> str:
        """Nothing that a client could know it by."""
        return "stand-in"

    def log_message(self, *_: Any) -> None:
        """Say nothing: the access log is written when the answer has ended."""


class Server(ThreadingHTTPServer):
    """The server, with what its requests share."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, app: App, routes: Routes, address: tuple[str, int]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.app = app
        self.routes = routes
        super().__init__(address, Handler)

    def server_bind(self) -> None:
        """Bind without looking its own name up, which can take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def handle_error(self, *_: Any) -> None:
        """Write what went wrong into the journal, as gin's recovery does."""
        log("recovery.go:40", "panic recovered", "ERROR", error=sys.exception())
