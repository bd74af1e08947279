"""Run one command in a container with its streams joined to descriptors of ours, with or without a terminal."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import termios
import threading
import time
import tty
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from typing import Any

from provisioner.hosts.incus import api
from provisioner.hosts.incus.api import Endpoint
from provisioner.hosts.incus.execute import (
    END_OF_INPUT,
    NEVER_STARTED,
    NOT_RUN,
    START_ATTEMPTS,
    WebSocket,
    encoded,
    kill,
)
from provisioner.values.signals import HEARD, heard_signals

__all__ = ["Ends", "attach"]


# Our side of the command: descriptors, and a terminal made raw and restored.


@dataclass(frozen=True)
class Ends:
    """The descriptors of ours that a command's streams are joined to; ``terminal``: stdin and stdout are one."""

    stdin: int
    stdout: int
    stderr: int
    terminal: bool = False

    @property
    def size(self) -> dict[str, int]:
        """The terminal's size, as Incus wants it; nothing where there is no terminal."""
        if not self.terminal:
            return {}
        size = os.get_terminal_size(self.stdout)
        return {"width": size.columns, "height": size.lines}


@contextmanager
def raw_terminal(ends: Ends) -> Iterator[None]:
    """Every key goes to the container, ctrl-c too; the terminal is as it was afterwards, whatever happens."""
    if not ends.terminal:
        yield
        return
    before = termios.tcgetattr(ends.stdin)
    try:
        tty.setraw(ends.stdin, termios.TCSADRAIN)  # what was typed ahead is kept
        yield
    finally:
        with suppress(termios.error):  # a terminal that is gone needs no restoring
            termios.tcsetattr(ends.stdin, termios.TCSADRAIN, before)


# The streams of a running command: bytes moved between our descriptors and its websockets, until it ends or is ended.

GRACE_S = 2.0
"""How long a command may take to end by itself once it was asked to."""
UNREAD_S = 0.5
"""How long a silent command may go on when nobody reads what it writes: it may just have ended."""
INPUT_BYTES = 1 << 15
UNWRITTEN_BYTES = 1 << 18
"""So much output waits for a slow reader before we stop listening to the container."""
LINGER_S = 5.0
"""How long Incus may take to say that a killed command has ended."""
_LOST = select.POLLERR | select.POLLHUP | select.POLLNVAL

Interests = list[tuple[int, int, Callable[[], None]]]
"""A descriptor, what it is polled for (0: only that it is lost), and what to do then."""


class _Writer:
    """Bytes on their way to one of our descriptors.

    It never blocks, and leaves the descriptor's mode as it is: a terminal shares that with other programs.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.unwritten = bytearray()
        self.is_lost = False

    def write(self) -> None:
        """Write what surely fits (``poll`` promises a pipe PIPE_BUF), or learn that nobody reads any more."""
        try:
            written = os.write(self.descriptor, self.unwritten[: select.PIPE_BUF])
            del self.unwritten[:written]
        except BlockingIOError:  # somebody else set the mode; it will be announced again
            return
        except BrokenPipeError:
            self.lose()

    def lose(self) -> None:
        """Nobody reads any more."""
        self.is_lost = True
        self.unwritten.clear()


@dataclass
class Joint:
    """One running command: ``sockets`` by Incus' names ("0", "1", "2", "control"), and the operation's own answer."""

    ends: Ends
    sockets: Mapping[str, WebSocket]
    operation: int
    """A descriptor that is readable as soon as the command has ended."""
    kill: Callable[[], None]
    """Kills the command and its children."""
    signals: int | None = None
    """Signals that arrive are readable here, a byte each."""
    ended_by: signal.Signals | None = None
    """What made us end the command, if anything did."""
    _unsent: bytes = b""
    _input_open: bool = True
    _is_over: bool = False
    _is_given_up: bool = False
    _due: tuple[float, Callable[[], None]] | None = None
    """What is to be done when that time comes."""
    _writers: dict[int, _Writer] = field(default_factory=dict)

    def run(self) -> None:
        """Return when the command has ended and everything that it wrote is written."""
        self._writers = {descriptor: _Writer(descriptor) for descriptor in (self.ends.stdout, self.ends.stderr)}
        for output, writer in self._outputs():
            # Frames that came in the same packet as the handshake are not announced.
            writer.unwritten += output.parse()
        while not self._is_done():
            self._wait()

    def _outputs(self) -> list[tuple[WebSocket, _Writer]]:
        out, err = self._writers[self.ends.stdout], self._writers[self.ends.stderr]
        if self.ends.terminal:
            return [(self.sockets["0"], out)]
        return [(self.sockets["1"], out), (self.sockets["2"], err)]

    def _is_done(self) -> bool:
        if self._is_given_up:
            return True
        is_read = all(socket.ended for socket, _ in self._outputs())
        is_written = not any(writer.unwritten for writer in self._writers.values())
        return self._is_over and is_read and is_written

    def _wait(self) -> None:
        interests = self._interests()
        masks: dict[int, int] = {}
        for descriptor, mask, _ in interests:
            masks[descriptor] = masks.get(descriptor, 0) | mask
        poll = select.poll()
        for descriptor, mask in masks.items():
            poll.register(descriptor, mask)
        left_s = None if self._due is None else max(0.0, self._due[0] - time.monotonic())
        seen = dict(poll.poll(None if left_s is None else left_s * 1000))
        for descriptor, mask, act in interests:
            if seen.get(descriptor, 0) & (mask | _LOST):
                act()
        if self._due is not None and time.monotonic() >= self._due[0]:
            _, act = self._due
            self._due = None
            act()

    def _interests(self) -> Interests:
        wanted: Interests = []
        if self.signals is not None:
            wanted.append((self.signals, select.POLLIN, self._hear))
        if not self._is_over:
            wanted.append((self.operation, select.POLLIN, self._learn_end))
        for output, writer in self._outputs():
            if not output.ended and len(writer.unwritten) < UNWRITTEN_BYTES:
                wanted.append((output.fileno(), select.POLLIN, partial(self._receive, output, writer)))
        for writer in self._writers.values():
            if not writer.is_lost:
                mask = select.POLLOUT if writer.unwritten else 0
                wanted.append((writer.descriptor, mask, partial(self._write, writer)))
        return wanted + self._input_interests()

    def _input_interests(self) -> Interests:
        if self._is_over or self.sockets["0"].ended:
            return []
        if self._unsent:
            return [(self.sockets["0"].fileno(), select.POLLOUT, self._send)]
        if self._input_open:
            return [(self.ends.stdin, select.POLLIN, self._read)]
        return []

    def _receive(self, socket: WebSocket, writer: _Writer) -> None:
        data = socket.receive()
        if not writer.is_lost:
            writer.unwritten += data
        elif data:
            self._end(signal.SIGPIPE)
        if socket.ended and self.ends.terminal:
            socket.close()  # Incus waits for that: the input might go on

    def _write(self, writer: _Writer) -> None:
        if writer.unwritten:
            writer.write()
            if writer.is_lost:
                self._end(signal.SIGPIPE)
            return
        writer.lose()  # it was announced, and not for having room
        if self.ended_by is None:
            self._due = (time.monotonic() + UNREAD_S, partial(self._end, signal.SIGPIPE))

    def _read(self) -> None:
        data = os.read(self.ends.stdin, INPUT_BYTES)
        self._unsent = encoded(data) if data else END_OF_INPUT
        self._input_open = bool(data)
        if self.ends.terminal and not data:
            self._end(signal.SIGHUP)

    def _send(self) -> None:
        # A command may end without reading what it was given: that is its right, and its exit code says the rest.
        sent = len(self._unsent)
        with suppress(BrokenPipeError, ConnectionResetError):
            sent = self.sockets["0"].send(self._unsent)
        self._unsent = self._unsent[sent:]

    def _learn_end(self) -> None:
        self._is_over = True

    def _hear(self) -> None:
        for number in os.read(self.signals or 0, 64):
            if number == signal.SIGWINCH:
                self._resize()
            elif number in HEARD:
                self._end(signal.Signals(number))

    def _resize(self) -> None:
        size = {name: str(value) for name, value in self.ends.size.items()}
        if size:
            self._control({"command": "window-resize", "args": size})

    def _end(self, number: signal.Signals) -> None:
        """Ask the command to end; whoever asks twice does not want to wait."""
        if self.ended_by is None:
            self.ended_by, self._due = number, (time.monotonic() + GRACE_S, self._kill)
            self._control({"command": "signal", "signal": int(number)})
        elif number is not signal.SIGPIPE:
            self._kill()

    def _kill(self) -> None:
        self._due = None
        self._control({"command": "signal", "signal": int(signal.SIGKILL)})
        self.kill()
        self._due = (time.monotonic() + LINGER_S, self._give_up)

    def _give_up(self) -> None:
        # A container may hold its outputs for ever: whoever ended the command waits for no more of them.
        self._is_given_up = True

    def _control(self, message: Mapping[str, Any]) -> None:
        if self._is_over:
            return
        with suppress(BrokenPipeError, ConnectionResetError):  # it has ended by itself
            self.sockets["control"].send(encoded(json.dumps(message).encode()))


# The command itself, from its start to its exit code.

INTERRUPTED = 130
NOBODY_READS = 128 + signal.SIGPIPE
_MARK = "PROVISIONER_ATTACHED"


def attach(
    endpoint: Endpoint, name: str, command: Sequence[str], ends: Ends, environment: Mapping[str, str] | None = None
) -> int:
    """Run ``command`` as root in ``name`` until it ends, and give its exit code; ``WireError`` when Incus refuses.

    SIGINT, SIGTERM and SIGHUP end the command with its children and give 130; a reader of ours that goes away does so
    too, and gives 141, as a shell would. In a thread other than the main one no signal is heard.
    """
    mark = str(uuid.uuid4())
    terminal = {"TERM": os.environ.get("TERM") or "dumb"} if ends.terminal else {}
    body = {
        "command": list(command),
        "environment": {**terminal, **(environment or {}), _MARK: mark},
        "wait-for-websocket": True,
        "interactive": ends.terminal,
        **ends.size,
    }
    with heard_signals() as signals:
        request = _Request(endpoint, name, body, ends, lambda: kill(endpoint, name, f"{_MARK}={mark}"), signals)
        for _ in range(START_ATTEMPTS - 1):
            try:
                return _attempt(request)
            except api.WireError as error:
                # On a busy host the sockets may not all be there in the 5 s that Incus allows; nothing has run then.
                if NEVER_STARTED not in str(error):
                    raise
        return _attempt(request)


@dataclass(frozen=True)
class _Request:
    endpoint: Endpoint
    name: str
    body: Mapping[str, Any]
    ends: Ends
    kill: Callable[[], None]
    signals: int | None


class _Operation:
    """The command as Incus sees it, waited for in a thread: Incus answers at once and says only later how it ended."""

    def __init__(self, endpoint: Endpoint, made: Mapping[str, Any]) -> None:
        # No time limit: what a user watches may go on for weeks.
        self._connection = api.connection_to(endpoint, timeout_s=None)
        # Asked before the command can end: Incus forgets an operation 5 s after its end, and the exit code with it.
        self._connection.request("GET", api.path_of("operations", made["id"], "wait"))
        self.ended, self._end = os.pipe()
        """Readable when the command has ended."""
        self._outcome: int | Exception = api.WireError(0, "the connection ended before the command")
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def code(self) -> int:
        """Its exit code, waited for; raises what Incus or the connection said instead."""
        self._thread.join()
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    def close(self) -> None:
        """Stop waiting."""
        with suppress(OSError):  # the other side may have closed it
            # The plain one: that of TLS would take the connection away from the thread that reads it.
            socket.socket.shutdown(self._connection.sock, socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()
        os.close(self.ended)

    def _wait(self) -> None:
        try:
            answer = api.answer_of(self._connection.getresponse())
            self._outcome = int(answer["metadata"]["metadata"]["return"])
        except (api.WireError, OSError, HTTPException) as error:
            self._outcome = error
        finally:
            os.close(self._end)


def _attempt(request: _Request) -> int:
    path = api.path_of("instances", request.name, "exec")
    made = api.call(request.endpoint, "POST", path, request.body)["metadata"]
    with closing(_Operation(request.endpoint, made)) as operation:
        try:
            joint = _joined(request, made, operation.ended)
            if joint.ended_by is None:
                return operation.code()
        except api.WireError as error:
            if str(error) not in NOT_RUN:
                raise
            os.write(request.ends.stderr, f"{request.body['command'][0]}: {error}\n".encode())
            return NOT_RUN[str(error)]
    return NOBODY_READS if joint.ended_by is signal.SIGPIPE else INTERRUPTED


def _joined(request: _Request, made: Mapping[str, Any], ended: int) -> Joint:
    """The streams, once the command has ended; nothing that it started runs on when it was we who ended it."""
    with ExitStack() as stack:
        sockets = _sockets(request, made, stack)
        stack.enter_context(raw_terminal(request.ends))
        joint = Joint(request.ends, sockets, ended, request.kill, request.signals)
        is_left_to_itself = False
        try:
            joint.run()
            is_left_to_itself = joint.ended_by is None
        finally:
            if not is_left_to_itself:
                request.kill()
    return joint


def _sockets(request: _Request, made: Mapping[str, Any], stack: ExitStack) -> dict[str, WebSocket]:
    def opened(secret: str) -> WebSocket:
        path = api.path_of("operations", made["id"], "websocket", secret=secret)
        joined = WebSocket(request.endpoint, path, answers_pings=request.ends.terminal)
        return stack.enter_context(closing(joined))

    keys = made["metadata"]["fds"]
    # The control socket comes first: the command starts, and may end, as soon as its own streams are joined.
    names = ("control", "0") if request.ends.terminal else ("control", "0", "1", "2")
    return {name: opened(keys[name]) for name in names}
