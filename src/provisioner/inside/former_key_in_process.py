"""Takes the key that a server had before its present one for a while, in the server's own process.

A gateway learns a new key after its engine has it. Until then it asks with the former one: ``FormerKey`` is ASGI and
has such a request go on with the present key. Keys that no gateway has, such as tabbyAPI's for administrators, count
at once. Roles of engines link this into their programs; it needs Python 3.10 and nothing else.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

SCHEME = b"Bearer "
SHORTEST = 16
"""Characters that a key has at least: what is shorter in the file is none of the role's, and is not taken."""


@dataclass(frozen=True)
class Kept:
    """A former key, and the moment (Unix time) from which on it is taken no more."""

    key: str
    until: float


def kept_in(file: Path, grace_s: float) -> Kept | None:
    """The former key in a file, whose time began when it was written; None where there is none, or its time is over."""
    try:
        key = file.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()
        until = file.stat().st_mtime + grace_s
    except OSError:
        return None  # nobody had another key, or it is not for this account to read
    return Kept(key, until) if len(key) >= SHORTEST and time.time() < until else None


class FormerKey:
    """``application``, which sees ``present`` where a request carries the key that was ``kept`` from before."""

    def __init__(self, application: Application, kept: Kept, present: str) -> None:
        self._application, self._until = application, kept.until
        self._present, self._former = present.encode(), kept.key.encode()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass it on."""
        if "headers" in scope and time.time() < self._until:
            scope = {**scope, "headers": [(name, self._exchanged(name, value)) for name, value in scope["headers"]]}
        await self._application(scope, receive, send)

    def _exchanged(self, name: bytes, value: bytes) -> bytes:
        """The header's value, with the present key where the former one stands."""
        if name == b"x-api-key" and hmac.compare_digest(value, self._former):
            return self._present
        if name == b"authorization" and hmac.compare_digest(value, SCHEME + self._former):
            return SCHEME + self._present
        return value
