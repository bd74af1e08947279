"""Run one command in a container with its streams joined to descriptors of ours, with or without a terminal."""

from __future__ import annotations

import os
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from provisioner.providers.incus import wire
from provisioner.providers.incus.endpoint import Endpoint
from provisioner.providers.incus.ends import Ends, raw_terminal
from provisioner.providers.incus.execute import NEVER_STARTED, NOT_RUN, START_ATTEMPTS, kill
from provisioner.providers.incus.streams import Joint
from provisioner.providers.incus.websocket import WebSocket
from provisioner.values.signals import heard_signals

__all__ = ["Ends", "attach"]

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
            except wire.WireError as error:
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
        self._connection = wire.connection_to(endpoint, timeout_s=None)
        # Asked before the command can end: Incus forgets an operation 5 s after its end, and the exit code with it.
        self._connection.request("GET", wire.path_of("operations", made["id"], "wait"))
        self.ended, self._end = os.pipe()
        """Readable when the command has ended."""
        self._outcome: int | Exception = wire.WireError(0, "the connection ended before the command")
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
            answer = wire.answer_of(self._connection.getresponse())
            self._outcome = int(answer["metadata"]["metadata"]["return"])
        except (wire.WireError, OSError, HTTPException) as error:
            self._outcome = error
        finally:
            os.close(self._end)


def _attempt(request: _Request) -> int:
    path = wire.path_of("instances", request.name, "exec")
    made = wire.call(request.endpoint, "POST", path, request.body)["metadata"]
    with closing(_Operation(request.endpoint, made)) as operation:
        try:
            joint = _joined(request, made, operation.ended)
            if joint.ended_by is None:
                return operation.code()
        except wire.WireError as error:
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
        path = wire.path_of("operations", made["id"], "websocket", secret=secret)
        joined = WebSocket(request.endpoint, path, answers_pings=request.ends.terminal)
        return stack.enter_context(closing(joined))

    keys = made["metadata"]["fds"]
    # The control socket comes first: the command starts, and may end, as soon as its own streams are joined.
    names = ("control", "0") if request.ends.terminal else ("control", "0", "1", "2")
    return {name: opened(keys[name]) for name in names}
