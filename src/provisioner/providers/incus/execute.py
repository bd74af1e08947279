"""Run one command in a container over websockets, with stdin, and give back every byte that it wrote."""

from __future__ import annotations

import json
import os
import selectors
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from http.client import HTTPResponse
from typing import Any

from provisioner.providers.incus import wire
from provisioner.providers.incus.endpoint import Endpoint
from provisioner.providers.incus.websocket import END_OF_INPUT, WebSocket, encoded
from provisioner.values import limits
from provisioner.values.state import Execution

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
    with suppress(ExecutionTimeoutError, OutputLimitError, wire.WireError):
        _attempts(request)


def _attempts(request: _Request) -> Execution:
    for _ in range(START_ATTEMPTS - 1):
        try:
            return _attempt(request)
        except wire.WireError as error:
            # On a busy host the sockets may not all be there in the 5 s that Incus allows; nothing has run then.
            if NEVER_STARTED not in str(error):
                raise
    return _attempt(request)


def _attempt(request: _Request) -> Execution:
    endpoint = request.endpoint
    body = {"command": list(request.command), "environment": request.environment, "wait-for-websocket": True}
    operation = wire.call(endpoint, "POST", wire.path_of("instances", request.name, "exec"), body)["metadata"]
    with ExitStack() as stack:
        waiter = stack.enter_context(closing(wire.connection_to(endpoint, limits.LONGEST_S)))
        # Asked before the command can end: Incus forgets an operation 5 s after its end, and the exit code with it.
        waiter.request("GET", wire.path_of("operations", operation["id"], "wait"))
        try:
            streams = _connect(request, operation, stack)
            _pump(streams)
        except (wire.WireError, ConnectionError):
            waiter.sock.settimeout(wire.CONNECT_TIMEOUT_S)
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
    path = wire.path_of("operations", operation["id"], "websocket", secret=operation["metadata"]["fds"]["control"])
    with suppress(wire.WireError, OSError), closing(WebSocket(endpoint, path)) as control:
        control.send(encoded(message))


def _connect(request: _Request, operation: Mapping[str, Any], stack: ExitStack) -> _Streams:
    def opened(secret: str) -> WebSocket:
        path = wire.path_of("operations", operation["id"], "websocket", secret=secret)
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
        answer = wire.answer_of(response)["metadata"]
    except wire.WireError as error:
        if str(error) not in NOT_RUN:
            raise
        return Execution(NOT_RUN[str(error)], b"", str(error).encode())
    return Execution(answer["metadata"]["return"], bytes(output["1"]), bytes(output["2"]))
