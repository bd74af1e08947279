"""The program ``ollama``: only what a service needs of it."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from tests.doubles.ollama.server.answering import App
from tests.doubles.ollama.server.golang import console, log
from tests.doubles.ollama.server.http_server import Server
from tests.doubles.ollama.server.routes import ROUTES
from tests.doubles.ollama.server.settings import VERSION, Settings


def make_key(home: Path) -> None:
    """Make the server's own key, which it has even where nothing asks for it (cmd/cmd.go, initializeKeypair)."""
    key = home / ".ollama" / "id_ed25519"
    if key.exists():
        return
    console(f"Couldn't find '{key}'. Generating new private key.")
    key.parent.mkdir(parents=True, exist_ok=True)
    key.touch(0o600)
    key.with_suffix(".pub").write_text("ssh-ed25519 stand-in\n")


def serve(settings: Settings) -> NoReturn:
    """Listen until a signal ends it."""
    make_key(Path(settings.home()))
    host, port = settings.address()
    log("routes.go:1951", "server config", env=settings.shown())
    log("routes.go:1953", f"Ollama cloud disabled: {str(settings.no_cloud).lower()}")
    app = App(settings)
    server = Server(app, ROUTES, (host, port))
    if not settings.no_prune:
        app.store.prune()
    for number in (signal.SIGTERM, signal.SIGINT):
        # server/routes.go:2026, srvr.Close(): every connection ends at once, so running answers lack their end; a
        # graceful Shutdown is not what it does.
        signal.signal(number, lambda *_: os._exit(0))
    bound = server.server_address
    log("routes.go:2004", f"Listening on {bound[0]!s}:{bound[1]} (version {VERSION})")
    server.serve_forever()
    raise SystemExit(0)


def main(arguments: list[str]) -> int:
    """Do what the command line says; only what a service needs is there."""
    try:
        if arguments == ["serve"]:
            serve(Settings(os.environ))
    except OSError as error:
        console(f"Error: {error}", sys.stderr)
        return 1
    console(f'Error: unknown command {json.dumps(" ".join(arguments))} for "ollama"', sys.stderr)
    return 1
