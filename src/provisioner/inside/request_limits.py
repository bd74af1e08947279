"""Stands in front of a web application, in the application's own process, and refuses what it would choke on.

Roles install this one file beside their launchers: it needs Python 3.10 and nothing else. ``Guard`` is ASGI and knows
requests: their path, key and body. ``watched`` is for connections of uvicorn on which no whole request has come yet,
``is_worth_a_line`` for what uvicorn writes of each request.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

DISCONNECTED: Message = {"type": "http.disconnect"}
PLAIN_PATH = re.compile(rb"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+")
"""A path that every program reads in the same way: no escapes, no empty segment, none that begins with a dot."""
KEY_HEADERS = (
    b"x-litellm-api-key",
    b"authorization",
    b"api-key",
    b"x-api-key",
    b"x-goog-api-key",
    b"ocp-apim-subscription-key",
)
"""Where clients of each provider write the key, in the order in which LiteLLM looks for it."""
SCHEMES = (b"bearer ", b"basic ")
GRACE_S = 0.2
"""A loop that was busy (an engine computes in it) finds limits passed and data unread at once: it reads first."""
DISCARDED_BYTES, DISCARD_S = 64 * 2**20, 5.0
"""How much of a refused body is read all the same: who still writes when the connection ends sees no answer."""
POLICY_VIOLATION = 1008
"""What a websocket is closed with; servers make 403 of it."""
UNAUTHORIZED = 401
PER_HEADER = 4
"""Bytes of ``: `` and the line's end."""


@dataclass(frozen=True)
class Limits:
    """What a request may take; all sizes in bytes, all times in seconds."""

    body: int = 32 * 2**20
    body_s: float = 300.0
    """How long a whole body is waited for; the application's own work does not count."""
    pause_s: float = 30.0
    """How long the next part of a body is waited for."""
    headers: int = 64 * 2**10
    headers_s: float = 10.0


@dataclass(frozen=True)
class Doors:
    """The paths that are passed on, and the key that they want; ``/*`` at an end stands for one more segment."""

    key: str
    paths: frozenset[str]
    open: frozenset[str]
    """Paths that want no key."""


@dataclass(frozen=True)
class Refusal:
    """An answer that is none of the application's."""

    status: int
    kind: str
    message: str


class Guard:
    """``application``, which gets only requests that are within ``limits`` and, if there are any, pass ``doors``."""

    def __init__(self, application: Application, limits: Limits, doors: Doors | None = None) -> None:
        self._application, self._limits, self._doors = application, limits, doors

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass the request on or refuse it; start and stop of the application go through."""
        if scope["type"] == "websocket" and self._doors:
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        elif scope["type"] != "http":
            await self._application(scope, receive, send)
        else:
            await self._exchange(scope, _Exchange(receive, send, self._limits, has_body=_has_body(scope["headers"])))

    async def _exchange(self, scope: Message, exchange: _Exchange) -> None:
        """One request and its answer."""
        refusal = self._refusal(scope)
        if refusal:
            await exchange.refuse(refusal)
            return
        try:
            await self._application(scope, exchange.receive, exchange.send)
        except Exception:
            # What it says of a request that was taken away from it concerns nobody.
            if not exchange.refused:
                raise
        await exchange.end()

    def _refusal(self, scope: Message) -> Refusal | None:
        """Why the request goes no further, as far as its head tells."""
        headers, limits = scope["headers"], self._limits
        if sum(len(name) + len(value) + PER_HEADER for name, value in headers) > limits.headers:
            return Refusal(431, "headers_too_large", f"A request's headers may have {limits.headers} bytes.")
        if self._doors:
            refusal = _turned_away(scope, self._doors)
            if refusal:
                return refusal
        if _said_length(headers) > limits.body:
            return _too_large(limits)
        return None


def watched(server: Any, limits: Limits) -> Any:
    """A class like uvicorn's protocol ``server`` that waits for a request's head no longer than ``limits`` say.

    uvicorn itself has no time limit for it, and with httptools none for its size.
    """

    class Watched(server):  # type: ignore[misc]  # a class that is only known when the server runs
        """Ends connections whose request does not begin."""

        def connection_made(self, transport: Any) -> None:
            """Wait for the first request."""
            super().connection_made(transport)
            self.head = _Head(limits, transport, self.loop)
            self.head.wait()

        def data_received(self, data: bytes) -> None:
            """Read on, and see whether the head is whole by now."""
            before = self.cycle
            super().data_received(data)
            begun = self.cycle is not before or self.transport.get_protocol() is not self
            answering = self.cycle is not None and not self.cycle.response_complete
            if begun or answering or self.transport.is_closing():
                self.head.stop()
            else:
                self.head.grow(len(data))

        def connection_lost(self, error: Any) -> None:
            """Wait no longer."""
            self.head.stop()
            super().connection_lost(error)

    return Watched


def is_worth_a_line(record: logging.LogRecord) -> bool:
    """Whether the journal tells of a request: not where the switch looks at the health page, twice a second."""
    return '"GET /health HTTP' not in record.getMessage()


class _Head:
    """The head of a request that is not whole yet: how large it is, and how long it is waited for."""

    def __init__(self, limits: Limits, transport: Any, loop: Any) -> None:
        self._limits, self._transport, self._loop = limits, transport, loop
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None

    def wait(self) -> None:
        """Begin to wait; time that was waited before counts."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._limits.headers_s, self._expire)

    def grow(self, size: int) -> None:
        """Count what came of it."""
        self._size += size
        if self._size > self._limits.headers:
            self._end(b"431 Request Header Fields Too Large")
        else:
            self.wait()

    def stop(self) -> None:
        """Wait no longer: it is whole, or will never be."""
        self._size = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = self._loop.call_later(GRACE_S, self._end, b"408 Request Timeout")

    def _end(self, status: bytes) -> None:
        self.stop()
        self._transport.write(b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        self._transport.close()


class _Exchange:
    """One request and its answer, between the server and the application."""

    def __init__(self, receive: Receive, send: Send, limits: Limits, *, has_body: bool) -> None:
        self._receive, self._send, self._limits = receive, send, limits
        self._arriving = has_body
        self._received, self._waited_s = 0, 0.0
        self._answered = False
        self.refused = False

    async def receive(self) -> Message:
        """The next part of the request for the application, which hears of no more than the limits allow."""
        if self.refused:
            return DISCONNECTED
        if not self._arriving:
            return await self._receive()
        began, left_s = time.monotonic(), self._limits.body_s - self._waited_s
        message = await _within(self._receive(), min(self._limits.pause_s, left_s)) if left_s > 0 else None
        if message is None:
            return await self._give_up(Refusal(408, "too_slow", "The request's body did not arrive in time."))
        self._waited_s += time.monotonic() - began
        self._received += len(message.get("body", b""))
        self._arriving = bool(message.get("more_body"))
        if self._received > self._limits.body:
            return await self._give_up(_too_large(self._limits))
        return message

    async def send(self, message: Message) -> None:
        """Pass on the application's answer, unless the request was refused meanwhile."""
        if not self.refused:
            self._answered = True
            await self._send(message)

    async def refuse(self, refusal: Refusal) -> None:
        """Answer instead of the application; the connection ends where a body would still come."""
        await self._begin(refusal)
        await self.end()

    async def end(self) -> None:
        """Complete an answer that is ours, when who asked has had time to see it."""
        if self.refused and not self._answered:
            await self._discard()
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _give_up(self, refusal: Refusal) -> Message:
        """Take the request away from the application; an answer that has begun is cut off."""
        if self._answered:
            self.refused = True
        else:
            await self._begin(refusal)
        return DISCONNECTED

    async def _begin(self, refusal: Refusal) -> None:
        """Send all of the answer, and leave the connection open."""
        self.refused = True
        error = {"message": refusal.message, "type": refusal.kind, "param": None, "code": str(refusal.status)}
        body = json.dumps({"error": error}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if refusal.status == UNAUTHORIZED:
            headers.append((b"www-authenticate", b"Bearer"))
        if self._arriving:
            headers.append((b"connection", b"close"))
        await self._send({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def _discard(self) -> None:
        """Read on for a moment: a connection that ends with something unread is reset, and the answer lost."""
        until, left = time.monotonic() + DISCARD_S, DISCARDED_BYTES
        while self._arriving and left > 0 and time.monotonic() < until:
            message = await _within(self._receive(), until - time.monotonic())
            if message is None:
                return
            left -= len(message.get("body", b""))
            self._arriving = bool(message.get("more_body"))


async def _within(receiving: Awaitable[Message], seconds: float) -> Message | None:
    """What is received; None where it does not come in time."""
    task = asyncio.ensure_future(receiving)
    try:
        for limit in (max(seconds, 0.0), GRACE_S):
            done, _ = await asyncio.wait({task}, timeout=limit)
            if done:
                return task.result()
        return None
    finally:
        task.cancel()


def _turned_away(scope: Message, doors: Doors) -> Refusal | None:
    """Why the request's path is not passed on."""
    path = _door(scope, doors)
    if path is None:
        return Refusal(404, "not_found", "There is nothing at this path.")
    if path in doors.open or _is_preflight(scope) or _has_key(scope["headers"], doors.key):
        return None
    return Refusal(UNAUTHORIZED, "auth_error", "Authentication Error, the request carries no key, or a wrong one.")


def _door(scope: Message, doors: Doors) -> str | None:
    """The entry of the list that the request's path is, as it was written on the wire."""
    raw = scope.get("raw_path") or scope["path"].encode()
    if not PLAIN_PATH.fullmatch(raw):
        return None
    path = raw.decode("ascii")
    if path != scope["path"]:
        return None
    any_below = f"{path.rpartition('/')[0]}/*"
    return next((entry for entry in (path, any_below) if entry in doors.paths or entry in doors.open), None)


def _is_preflight(scope: Message) -> bool:
    """Whether a browser asks, without a key, whether it may ask: that goes no further than the layer that knows."""
    names = {name for name, _ in scope["headers"]}
    return scope["method"] == "OPTIONS" and {b"origin", b"access-control-request-method"} <= names


def _has_key(headers: Headers, key: str) -> bool:
    """Whether the first header in which a key may stand holds this one; as long as any other comparison."""
    given = dict(reversed(headers))
    value = next((given[name] for name in KEY_HEADERS if given.get(name)), b"")
    for scheme in SCHEMES:
        if value[: len(scheme)].lower() == scheme:
            value = value[len(scheme) :]
    return hmac.compare_digest(value, key.encode())


def _has_body(headers: Headers) -> bool:
    return _said_length(headers) > 0 or any(name == b"transfer-encoding" for name, _ in headers)


def _said_length(headers: Headers) -> int:
    """The body's length as the head tells it; 0 where it does not."""
    return max((int(value) for name, value in headers if name == b"content-length" and value.isdigit()), default=0)


def _too_large(limits: Limits) -> Refusal:
    return Refusal(413, "body_too_large", f"A request's body may have {limits.body} bytes. Send less at once.")
