"""HTTP and websockets over Incus' unix socket, from the standard library alone: the fast way for commands and files.

pylxd is right over this socket, but importing it costs 0.15 CPU-seconds, which Ansible would pay once per task, its
files API holds whole files in memory, and its ``execute`` waits in steps of 100 ms.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from typing import IO, Any
from urllib.parse import quote, urlencode

CONNECT_TIMEOUT_S = 60.0
_TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x1, 0x2, 0x8, 0x9, 0xA
BLOCK_BYTES = 1 << 18

Body = bytes | IO[bytes] | Iterable[bytes]


class WireError(Exception):
    """What Incus answered instead of what was asked: the HTTP status and its own words."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class UnixConnection(http.client.HTTPConnection):
    """One HTTP connection to the daemon's socket; close it, or use it in ``contextlib.closing``."""

    def __init__(self, endpoint: str, timeout_s: float | None = CONNECT_TIMEOUT_S) -> None:
        super().__init__("localhost", blocksize=BLOCK_BYTES)
        self._endpoint = endpoint
        self._timeout_s = timeout_s

    def connect(self) -> None:
        """Connect to the socket; ``OSError`` when there is none or this user may not use it."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._timeout_s)
        self.sock.connect(self._endpoint)


def path_of(*segments: str, **query: str) -> str:
    """The API path of ``segments``, each quoted whole (an alias may hold a slash), with ``query``."""
    path = "/".join(["/1.0", *(quote(segment, safe="") for segment in segments)])
    return f"{path}?{urlencode(query)}" if query else path


def checked(response: http.client.HTTPResponse) -> http.client.HTTPResponse:
    """The response when it is a success, unread; ``WireError`` with the server's words, else."""
    if response.status < 300:
        return response
    raw = response.read()
    try:
        text = str(json.loads(raw)["error"])
    except (ValueError, KeyError, TypeError):
        text = raw.decode(errors="replace").strip() or f"HTTP status {response.status}"
    raise WireError(response.status, text)


def answer_of(response: http.client.HTTPResponse) -> dict[str, Any]:
    """The JSON of a successful response; ``WireError`` when it is none."""
    answer: dict[str, Any] = json.loads(checked(response).read())
    # A failed operation is waited for with HTTP status 200; only the body says that it is an error.
    if answer.get("type") == "error":
        raise WireError(int(answer["error_code"]), str(answer["error"]))
    return answer


def call(endpoint: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The JSON answer to one request; ``WireError`` when it was refused."""
    with closing(UnixConnection(endpoint)) as connection:
        connection.request(method, path, None if body is None else json.dumps(body))
        return answer_of(connection.getresponse())


class WebSocket:
    """A client websocket (RFC 6455) on the daemon's socket that is read and written when a selector says so."""

    def __init__(self, endpoint: str, path: str) -> None:
        self._connection = UnixConnection(endpoint)
        self._buffer = b""
        self.ended = False
        self._open(path)

    def _open(self, path: str) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
        self._connection.putrequest("GET", path)
        for name, value in {**upgrade, "Sec-WebSocket-Key": key}.items():
            self._connection.putheader(name, value)
        self._connection.endheaders()
        status = self._handshake()
        if status != 101:
            self.close()
            raise WireError(status, f"no websocket at {path.partition('?')[0]}")
        self._connection.sock.setblocking(False)

    def _handshake(self) -> int:
        # http.client would buffer the first frames away behind the response's headers, so they are read by hand.
        while b"\r\n\r\n" not in self._buffer:
            data = self._connection.sock.recv(BLOCK_BYTES)
            if not data:
                return 0
            self._buffer += data
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1])

    def fileno(self) -> int:
        """The descriptor for a selector."""
        return self._connection.sock.fileno()

    def close(self) -> None:
        """Drop the connection."""
        self._connection.close()

    def receive(self) -> bytes:
        """The payload that has arrived; ``ended`` is true once the other side has said that it was the last."""
        data = self._connection.sock.recv(BLOCK_BYTES)
        if not data and not self.ended:
            raise WireError(0, "the connection ended in the middle of the output")
        self._buffer += data
        return self.parse()

    def parse(self) -> bytes:
        """The payload that had arrived together with the handshake."""
        return b"".join(self._payloads())

    def _payloads(self) -> Iterable[bytes]:
        while not self.ended and (frame := self._frame()) is not None:
            opcode, payload = frame
            if opcode == _CLOSE or (opcode == _TEXT and not payload):
                self.ended = True
            elif opcode == _PING:
                self._answer(payload)
            elif opcode != _PONG:
                yield payload

    def _answer(self, ping: bytes) -> None:
        # Incus pings each socket as it opens it; a short command may have closed it by the time the ping is read.
        with suppress(BrokenPipeError):
            self.send(encoded(ping, opcode=_PONG))

    def _frame(self) -> tuple[int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        size, start = buffer[1] & 0x7F, 2
        if size > 125:
            start = 4 if size == 126 else 10
            if len(buffer) < start:
                return None
            size = int.from_bytes(buffer[2:start])
        if len(buffer) < start + size:
            return None
        self._buffer = buffer[start + size :]
        return buffer[0] & 0x0F, buffer[start : start + size]

    def send(self, data: bytes | memoryview) -> int:
        """Send what the connection takes now of ``data`` (made by ``encoded``) and say how much that was."""
        return self._connection.sock.send(data)


def encoded(payload: bytes, *, opcode: int = _BINARY) -> bytes:
    """One websocket frame from a client."""
    size = len(payload)
    if size < 126:
        head = bytes([0x80 | opcode, 0x80 | size])
    elif size < 1 << 16:
        head = bytes([0x80 | opcode, 0x80 | 126]) + size.to_bytes(2)
    else:
        head = bytes([0x80 | opcode, 0x80 | 127]) + size.to_bytes(8)
    # A client's frame must carry a mask; the mask 0 is a legal one, and there is no proxy on this socket to fool.
    return head + bytes(4) + payload


END_OF_INPUT = encoded(b"", opcode=_TEXT)
