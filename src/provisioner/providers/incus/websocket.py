"""A client websocket (RFC 6455) to Incus, as small as its exec API allows."""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Iterable
from contextlib import suppress
from http import HTTPStatus

from provisioner.providers.incus.endpoint import Endpoint
from provisioner.providers.incus.wire import BLOCK_BYTES, WireError, connection_to
from provisioner.values import limits

_TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x1, 0x2, 0x8, 0x9, 0xA
_FINAL, _MASKED = 0x80, 0x80
_OPCODE, _SIZE = 0x0F, 0x7F
_HEAD_BYTES = 2
_SIZE_IN_2_BYTES, _SIZE_IN_8_BYTES = 126, 127
"""What stands in a frame's own 7 bits for the size where it does not fit."""
_NO_MASK = bytes(4)


def encoded(payload: bytes, *, opcode: int = _BINARY) -> bytes:
    """One frame from a client."""
    size = len(payload)
    if size < _SIZE_IN_2_BYTES:
        head = bytes([_FINAL | opcode, _MASKED | size])
    elif size < 1 << 16:
        head = bytes([_FINAL | opcode, _MASKED | _SIZE_IN_2_BYTES]) + size.to_bytes(2)
    else:
        head = bytes([_FINAL | opcode, _MASKED | _SIZE_IN_8_BYTES]) + size.to_bytes(8)
    # A client's frame must carry a mask; the mask 0 is a legal one, and there is no proxy here to fool.
    return head + _NO_MASK + payload


END_OF_INPUT = encoded(b"", opcode=_TEXT)
"""Incus closes the command's stdin at an empty text frame, and ends its outputs with one."""


class WebSocket:
    """An open websocket that is read and written when a selector says so; it never blocks.

    ``answers_pings`` only where Incus reads on to the command's end. From a stream that only brings output it reads
    nothing; what lies there unread when it closes has TCP throw away the output that is still on its way.
    """

    def __init__(self, endpoint: Endpoint, path: str, *, answers_pings: bool = False) -> None:
        self._connection = connection_to(endpoint)
        self._buffer = b""
        self._answers_pings = answers_pings
        self._is_half_sent = False
        self.ended = False
        self._open(path)

    def fileno(self) -> int:
        """The descriptor, for a selector."""
        return self._connection.sock.fileno()

    def close(self) -> None:
        """Drop the connection."""
        self._connection.close()

    def send(self, data: bytes | memoryview) -> int:
        """Send what the connection takes now of ``data`` (made by ``encoded``) and say how much that was."""
        try:
            sent: int = self._connection.sock.send(data)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            sent = 0
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise BrokenPipeError(str(error)) from error
        self._is_half_sent = sent < len(data)
        return sent

    def receive(self) -> bytes:
        """The payload that has arrived; ``ended`` is true once the other side has said that it was the last."""
        try:
            data = self._connection.sock.recv(BLOCK_BYTES)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return b""  # a part of a record: TLS gives whole ones, and one at a time, so that none waits unannounced
        if not data:
            raise WireError(0, "the connection ended in the middle of the output")
        self._buffer += data
        return self.parse()

    def parse(self) -> bytes:
        """The payload among the bytes that are there already, such as those that came with the handshake."""
        return b"".join(self._payloads())

    def _open(self, path: str) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
        self._connection.putrequest("GET", path)
        for name, value in {**upgrade, "Sec-WebSocket-Key": key}.items():
            self._connection.putheader(name, value)
        self._connection.endheaders()
        status = self._handshake()
        if status != HTTPStatus.SWITCHING_PROTOCOLS:
            self.close()
            raise WireError(status, f"no websocket at {path.partition('?')[0]}")
        self._connection.sock.setblocking(False)

    def _handshake(self) -> int:
        # http.client would buffer the first frames away behind the response's headers, so they are read by hand.
        while b"\r\n\r\n" not in self._buffer:
            if len(self._buffer) > BLOCK_BYTES:
                return 0
            data = self._connection.sock.recv(BLOCK_BYTES)
            if not data:
                return 0
            self._buffer += data
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1])

    def _payloads(self) -> Iterable[bytes]:
        while not self.ended and (frame := self._frame()) is not None:
            opcode, payload = frame
            if opcode == _CLOSE or (opcode == _TEXT and not payload):
                self.ended = True
            elif opcode == _PING and self._answers_pings:
                self._answer(payload)
            elif opcode not in {_PING, _PONG}:
                yield payload

    def _answer(self, ping: bytes) -> None:
        if self._is_half_sent:
            return  # the answer would land inside of a frame; that of the next ping will do
        # Incus pings each socket as it opens it; a short command may have closed it by the time the ping is read.
        with suppress(BrokenPipeError):
            self.send(encoded(ping, opcode=_PONG))

    def _frame(self) -> tuple[int, bytes] | None:
        """The next whole frame as (opcode, payload), taken out of the buffer; None while it has not all arrived."""
        buffer, start = self._buffer, _HEAD_BYTES
        if len(buffer) < start:
            return None
        size = buffer[1] & _SIZE
        if size in {_SIZE_IN_2_BYTES, _SIZE_IN_8_BYTES}:
            start += 2 if size == _SIZE_IN_2_BYTES else 8
            if len(buffer) < start:
                return None
            size = int.from_bytes(buffer[_HEAD_BYTES:start])
        if size > limits.OUTPUT_BYTES:
            raise WireError(0, f"a part of the output has {size} bytes, which is more than is taken")
        if len(buffer) < start + size:
            return None
        self._buffer = buffer[start + size :]
        return buffer[0] & _OPCODE, buffer[start : start + size]
