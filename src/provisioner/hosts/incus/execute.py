"""Run one command in a container over websockets, with stdin, and give back every byte that it wrote."""

from __future__ import annotations

import base64
import json
import os
import selectors
import signal
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPResponse
from typing import Any

from provisioner.hosts.incus import api
from provisioner.hosts.incus.api import BLOCK_BYTES, Endpoint, WireError, connection_to
from provisioner.values import limits
from provisioner.values.state import Execution

# A client websocket (RFC 6455) to Incus, as small as its exec API allows.

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


# One command with its stdin, and all of its output.

NOT_RUN = {"Command not found": 127, "Command not executable": 126}
"""Incus fails the operation where a shell would give these exit codes."""
START_ATTEMPTS = 3
NEVER_STARTED = "Timed out waiting for websockets to connect"
_STDIN_CHUNK_BYTES = 1 << 15
_MARK = "PROVISIONER_EXECUTION"
_KILL = 'for one in $(grep -lszF "$1" /proc/[0-9]*/environ); do one=${one%/environ}; kill -KILL "${one#/proc/}"; done'


class ExecutionTimeoutError(Exception):
    """The command ran longer than it was allowed to, and was killed."""


class OutputLimitError(Exception):
    """The command wrote more than it was allowed to, and was killed."""


@dataclass(frozen=True)
class _Request:
    endpoint: Endpoint
    name: str
    command: Sequence[str]
    stdin: bytes = b""
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = limits.COMMAND_S
    limit: int = limits.OUTPUT_BYTES


@dataclass
class _Streams:
    sockets: Mapping[str, WebSocket]
    unsent: memoryview
    deadline: float
    limit: int
    output: Mapping[str, bytearray] = field(default_factory=lambda: {"1": bytearray(), "2": bytearray()})


def run(
    endpoint: Endpoint,
    name: str,
    command: Sequence[str],
    *,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    timeout_s: float = limits.COMMAND_S,
    limit: int = limits.OUTPUT_BYTES,
) -> Execution:
    """Run ``command`` as root in ``name``; ``WireError`` when Incus refuses.

    It is killed, and ``ExecutionTimeoutError`` or ``OutputLimitError`` raised, after ``timeout_s`` or when one of its
    outputs has more than ``limit`` bytes.
    """
    mark = os.urandom(16).hex()
    request = _Request(endpoint, name, command, stdin, {**(environment or {}), _MARK: mark}, timeout_s, limit)
    try:
        return _attempts(request)
    except (ExecutionTimeoutError, OutputLimitError):
        kill(endpoint, name, f"{_MARK}={mark}")
        raise


def kill(endpoint: Endpoint, name: str, mark: str) -> None:
    """Kill every process in ``name`` that has ``mark`` in its environment.

    The signal of the exec API reaches only the process that it started, never that one's children. A container whose
    shell does not do what it is told keeps its processes: nobody waits for it longer than ``KILL_S``.
    """
    request = _Request(endpoint, name, ["sh", "-c", _KILL, "sh", mark], timeout_s=limits.KILL_S)
    with suppress(ExecutionTimeoutError, OutputLimitError, api.WireError):
        _attempts(request)


def _attempts(request: _Request) -> Execution:
    for _ in range(START_ATTEMPTS - 1):
        try:
            return _attempt(request)
        except api.WireError as error:
            # On a busy host the sockets may not all be there in the 5 s that Incus allows; nothing has run then.
            if NEVER_STARTED not in str(error):
                raise
    return _attempt(request)


def _attempt(request: _Request) -> Execution:
    endpoint = request.endpoint
    body = {"command": list(request.command), "environment": request.environment, "wait-for-websocket": True}
    operation = api.call(endpoint, "POST", api.path_of("instances", request.name, "exec"), body)["metadata"]
    with ExitStack() as stack:
        waiter = stack.enter_context(closing(api.connection_to(endpoint, limits.LONGEST_S)))
        # Asked before the command can end: Incus forgets an operation 5 s after its end, and the exit code with it.
        waiter.request("GET", api.path_of("operations", operation["id"], "wait"))
        try:
            streams = _connect(request, operation, stack)
            _pump(streams)
        except (api.WireError, ConnectionError):
            waiter.sock.settimeout(api.CONNECT_TIMEOUT_S)
            _result(waiter.getresponse(), {"1": bytearray(), "2": bytearray()})
            # The operation knows why there was nothing to connect to; if it says that all is well, this is the reason.
            raise
        except (ExecutionTimeoutError, OutputLimitError):
            _signal_kill(endpoint, operation)
            raise
        try:
            # It may have closed its outputs and run on.
            waiter.sock.settimeout(_left(streams.deadline))
            return _result(waiter.getresponse(), streams.output)
        except (TimeoutError, ExecutionTimeoutError) as error:
            _signal_kill(endpoint, operation)
            raise ExecutionTimeoutError from error


def _signal_kill(endpoint: Endpoint, operation: Mapping[str, Any]) -> None:
    """Kill the process that Incus started; that needs nothing of the container."""
    message = json.dumps({"command": "signal", "signal": int(signal.SIGKILL)}).encode()
    path = api.path_of("operations", operation["id"], "websocket", secret=operation["metadata"]["fds"]["control"])
    with suppress(api.WireError, OSError), closing(WebSocket(endpoint, path)) as control:
        control.send(encoded(message))


def _connect(request: _Request, operation: Mapping[str, Any], stack: ExitStack) -> _Streams:
    def opened(secret: str) -> WebSocket:
        path = api.path_of("operations", operation["id"], "websocket", secret=secret)
        return stack.enter_context(closing(WebSocket(request.endpoint, path)))

    keys, stdin = operation["metadata"]["fds"], request.stdin
    chunks = (stdin[start : start + _STDIN_CHUNK_BYTES] for start in range(0, len(stdin), _STDIN_CHUNK_BYTES))
    unsent = b"".join([*map(encoded, chunks), END_OF_INPUT])
    deadline = time.monotonic() + request.timeout_s
    return _Streams({name: opened(keys[name]) for name in ("0", "1", "2")}, memoryview(unsent), deadline, request.limit)


def _pump(streams: _Streams) -> None:
    """Move stdin and both outputs at once: a command that fills one while we feed another would wait for ever."""
    with selectors.DefaultSelector() as selector:
        selector.register(streams.sockets["0"], selectors.EVENT_WRITE, "0")
        for name in streams.output:
            selector.register(streams.sockets[name], selectors.EVENT_READ, name)
            # Frames that came in the same packet as the handshake are not announced by the selector.
            _read(streams, name, selector, parse_only=True)
        while any(not streams.sockets[name].ended for name in streams.output):
            for key, _ in selector.select(_left(streams.deadline)):
                if key.data == "0":
                    _write(streams, selector)
                else:
                    _read(streams, key.data, selector)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise ExecutionTimeoutError
    return left


def _write(streams: _Streams, selector: selectors.BaseSelector) -> None:
    # A command may end without reading what it was given: that is its right, and its exit code says the rest.
    sent = len(streams.unsent)
    with suppress(BrokenPipeError, ConnectionResetError):
        sent = streams.sockets["0"].send(streams.unsent)
    streams.unsent = streams.unsent[sent:]
    if not streams.unsent:
        selector.unregister(streams.sockets["0"])


def _read(streams: _Streams, one: str, selector: selectors.BaseSelector, *, parse_only: bool = False) -> None:
    socket = streams.sockets[one]
    streams.output[one].extend(socket.parse() if parse_only else socket.receive())
    if len(streams.output[one]) > streams.limit:
        raise OutputLimitError
    if socket.ended:
        selector.unregister(socket)


def _result(response: HTTPResponse, output: Mapping[str, bytearray]) -> Execution:
    try:
        answer = api.answer_of(response)["metadata"]
    except api.WireError as error:
        if str(error) not in NOT_RUN:
            raise
        return Execution(NOT_RUN[str(error)], b"", str(error).encode())
    return Execution(answer["metadata"]["return"], bytes(output["1"]), bytes(output["2"]))
