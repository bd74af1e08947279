"""Runs Kokoro-FastAPI where another program could take its place, its card or its time without a word.

``launch.py --host ADDRESS --port NUMBER --max-input BYTES [--start-timeout SECONDS] [--drain SECONDS] [--cuda]``, in
the checkout, with upstream's settings in the environment. Exits with 78 for what another attempt does not mend, and
with 1 where it is not warm in time.
"""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import NoReturn

from guard import Application, Guard, Limits, Message, Receive, Send, is_worth_a_line, watched

APPLICATION = "api.src.main"
CONFIGURATION = 78
"""EX_CONFIG of sysexits.h; systemd starts a unit that ends so no further time."""
DRAIN_S, START_S = 10, 300.0
STARTED = "lifespan.startup.complete"
"""What an application says once it is loaded and warm; nobody is answered before."""


def main(words: Sequence[str]) -> None:
    """Serve until systemd ends it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--max-input", type=int, required=True)
    # The unit of an earlier version says nothing; it has to start after a run that was refused half-way, too.
    parser.add_argument("--start-timeout", type=float, default=START_S)
    parser.add_argument("--drain", type=int, default=DRAIN_S, help="seconds that running answers have at the end")
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
    connection = importlib.import_module("uvicorn.protocols.http.h11_impl").H11Protocol
    # A text is prepared as a whole, and the server reads one that is too long before it says so.
    limits = Limits(body=asked.max_input)
    guarded = Guard(Told(application, limit.cancel), limits)
    config = uvicorn.Config(guarded, http=watched(connection, limits), timeout_graceful_shutdown=asked.drain)
    logging.getLogger("uvicorn.access").addFilter(is_worth_a_line)
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


class Told:
    """An application of which ``started`` is called when it has started."""

    def __init__(self, application: Application, started: Callable[[], None]) -> None:
        self._application, self._started = application, started

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass everything on, and listen to what it says of itself."""

        async def listened(message: Message) -> None:
            if message["type"] == STARTED:
                self._started()
            await send(message)

        await self._application(scope, receive, listened if scope["type"] == "lifespan" else send)


if __name__ == "__main__":
    main(sys.argv[1:])
