"""Runs Kokoro-FastAPI where another program could take its place, its card or its time without a word.

``launch.py --host ADDRESS --port NUMBER --max-input BYTES [--start-timeout SECONDS] [--cuda]``, in the checkout,
with upstream's settings in the environment. Exits with 78 for what another attempt does not mend, and with 1 where it
is not warm in time.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, NoReturn

APPLICATION = "api.src.main"
CONFIGURATION = 78
"""EX_CONFIG of sysexits.h; systemd starts a unit that ends so no further time."""
TOO_LARGE = 413
LEAVING_S, START_S = 10, 300.0
STARTED = "lifespan.startup.complete"
"""What an application says once it is loaded and warm; nobody is answered before."""
THROWN_AWAY = 64 * 2**20
"""Bytes of a refused request that are read all the same: who still writes when the connection ends sees no answer."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


def main(words: Sequence[str]) -> None:
    """Serve until systemd ends it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--max-input", type=int, required=True)
    # The unit of an earlier version says nothing; it has to start after a run that was refused half-way, too.
    parser.add_argument("--start-timeout", type=float, default=START_S)
    parser.add_argument("--cuda", action="store_true")
    asked = parser.parse_args(words)
    limit = time_limit(asked.start_timeout)
    listener = listening(asked.host, asked.port)
    import torch

    if asked.cuda and not torch.cuda.is_available():
        refuse("torch finds no card of nvidia. Run nvidia-smi here; a driver of 580 or newer is needed")
    import importlib

    import uvicorn

    application = importlib.import_module(APPLICATION).app
    limited = Limited(application, asked.max_input, limit.cancel)
    config = uvicorn.Config(limited, timeout_graceful_shutdown=LEAVING_S)
    server = uvicorn.Server(config)
    server.run(sockets=[listener])
    if not server.started:
        # It returns as it does after a good end, and systemd would take a start that failed for one.
        sys.exit("Unable to start Kokoro: its model or its voice could not be loaded, as said above.")


def listening(host: str, port: int) -> socket.socket:
    """The port, taken before anything large is loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        refuse(f"port {port} of {host} cannot be had ({error.strerror})")
    return listener


def time_limit(seconds: float) -> threading.Timer:
    """The end of a start that takes longer, unless it is called off: to systemd it has started when it is executed."""

    def end() -> None:
        sys.stderr.write(f"Unable to start Kokoro: it was not loaded and warm within {seconds:g} seconds.\n")
        sys.stderr.flush()
        # What hangs cannot be asked to end.
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    return timer


def refuse(reason: str) -> NoReturn:
    """End for good."""
    sys.stderr.write(f"Unable to start Kokoro: {reason}.\n")
    sys.exit(CONFIGURATION)


class Limited:
    """An application that gets no request of more than so many bytes: a text is prepared as a whole.

    ``started`` is called when it has started.
    """

    def __init__(self, application: Application, most: int, started: Callable[[], None]) -> None:
        self._application, self._most, self._started = application, most, started

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it; one that does not say how long it is ends when it is too long."""
        if scope["type"] != "http":
            return await self._application(scope, receive, self._listening(send))
        said = int(dict(scope["headers"]).get(b"content-length", b"0"))
        if said > self._most:
            more = said <= THROWN_AWAY
            while more:
                more = bool((await receive()).get("more_body"))
            return await self._refuse(send)
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message if received <= self._most else {"type": "http.disconnect"}

        return await self._application(scope, counted, send)

    def _listening(self, send: Send) -> Send:
        async def listened(message: Message) -> None:
            if message["type"] == STARTED:
                self._started()
            await send(message)

        return listened

    async def _refuse(self, send: Send) -> None:
        detail = {
            "error": "input_too_long",
            "message": f"A request may have {self._most} bytes. Send the text in parts.",
        }
        body = json.dumps({"detail": detail}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": TOO_LARGE, "headers": headers})
        await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    main(sys.argv[1:])
