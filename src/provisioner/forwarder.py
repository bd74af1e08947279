"""A server on loopback that adds a key to what it passes on, for programs that take keys only where others see them.

It listens under a path that nobody can guess, passes on what benchmarks ask and nothing else, streams answers as they
come, and ends with the block in which it is used.
"""

from __future__ import annotations

import hmac
import http.client
import json
import secrets
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from provisioner.values.plain_data import json_value
from provisioner.values.state import Secret

PASSED_ON = frozenset({("GET", "/v1/models"), ("POST", "/v1/chat/completions"), ("POST", "/v1/completions")})
"""Methods and paths."""
LONGEST_REQUEST = 64 * 2**20
"""Bytes; a prompt of a million tokens has less."""
PIECE = 2**16
LONGEST_SILENCE_S = 3600.0
TOKEN_BYTES = 24
VERSION = "/v1"
HTTP = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go: OpenAI's base URL, the key that is added (None: none), what TLS trusts.

    ``without``: what is left out of the body of requests, as only some services know it.
    """

    url: str
    key: Secret | None = None
    trust: ssl.SSLContext | None = None
    without: frozenset[str] = frozenset()

    def connection(self) -> http.client.HTTPConnection:
        """A connection that is not open yet."""
        parts = urlsplit(self.url)
        host, port = parts.hostname or "", parts.port or HTTP[parts.scheme]
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=LONGEST_SILENCE_S)
        trust = self.trust or ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=LONGEST_SILENCE_S, context=trust)

    def path_of(self, path: str) -> str:
        """Where a path of a request lies there."""
        return urlsplit(self.url).path.rstrip("/") + path.removeprefix(VERSION)

    def body_of(self, body: bytes) -> bytes:
        """What of a request is passed on; ``ValueError`` where that cannot be told."""
        if not self.without or not body:
            return body
        said = json_value(body)
        if not isinstance(said, dict):
            raise ValueError("no object")  # noqa: TRY004  # as for everything else that is no request
        return json.dumps({name: value for name, value in said.items() if name not in self.without}).encode()


@dataclass
class Forwarder:
    """Where a target is reached without its key: ``url``, without ``/v1``; and how many prompts were passed on."""

    url: str
    prompts: int = 0
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def count(self) -> None:
        """One more prompt was passed on."""
        with self._counting:
            self.prompts += 1


@contextmanager
def forwarding(target: Target) -> Iterator[Forwarder]:
    """Reach ``target`` without its key for as long as the block lasts."""
    prefix = f"/{secrets.token_urlsafe(TOKEN_BYTES)}"
    forwarder = Forwarder("")

    class Handler(_Handler):
        pass

    Handler.target, Handler.prefix, Handler.forwarder = target, prefix, forwarder
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, name="forwarder", daemon=True)
        serving.start()
        try:
            forwarder.url = f"http://127.0.0.1:{server.server_port}{prefix}"
            yield forwarder
        finally:
            server.shutdown()
            serving.join()


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client: its requests one after the other, over one connection to the target."""

    protocol_version = "HTTP/1.1"
    timeout = LONGEST_SILENCE_S
    disable_nagle_algorithm = True  # else pieces of an answer would wait for each other
    target: Target
    prefix: str
    forwarder: Forwarder
    there: http.client.HTTPConnection | None = None

    def do_GET(self) -> None:
        """Pass it on."""
        self._pass_on()

    def do_POST(self) -> None:
        """Pass it on."""
        self._pass_on()

    def log_message(self, *_: Any) -> None:
        """Nothing: prompts are the user's."""

    def finish(self) -> None:
        """End the connection to the target, too."""
        if self.there is not None:
            self.there.close()
        super().finish()

    def _pass_on(self) -> None:
        given, path = self.path[: len(self.prefix)], self.path[len(self.prefix) :]
        if not hmac.compare_digest(given.encode(), self.prefix.encode()) or (self.command, path) not in PASSED_ON:
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > LONGEST_REQUEST:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        try:
            body = self.target.body_of(self.rfile.read(int(length)))
        except ValueError:
            self._refuse(HTTPStatus.BAD_REQUEST)
            return
        try:
            answer = self._asked(path, body)
        except (OSError, http.client.HTTPException):
            self._refuse(HTTPStatus.BAD_GATEWAY)
            return
        with answer:
            self._answer(answer)

    def _asked(self, path: str, body: bytes) -> http.client.HTTPResponse:
        """What the target answers, over the connection of the request before where that still stands."""
        if self.command == "POST":
            self.forwarder.count()
        if self.there is not None:
            try:
                return self._sent(self.there, path, body)
            except (ConnectionError, http.client.BadStatusLine):
                self.there.close()  # it was idle for too long
        self.there = self.target.connection()
        return self._sent(self.there, path, body)

    def _sent(self, there: http.client.HTTPConnection, path: str, body: bytes) -> http.client.HTTPResponse:
        headers = {"Content-Type": self.headers.get("Content-Type", "application/json")}
        if self.target.key is not None:
            headers["Authorization"] = f"Bearer {self.target.key.reveal()}"
        there.request(self.command, self.target.path_of(path), body or None, headers)
        return there.getresponse()

    def _answer(self, answer: http.client.HTTPResponse) -> None:
        """Give back what comes, as it comes; an answer that breaks off there breaks off here."""
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            while piece := answer.read1(PIECE):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if answer.length:  # it broke off, and says nothing of it
                raise http.client.IncompleteRead(b"", answer.length)
            self.wfile.write(b"0\r\n\r\n")
        except (OSError, http.client.HTTPException):
            self.close_connection = True

    def _refuse(self, status: int) -> None:
        self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()
