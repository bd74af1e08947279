"""Starts LiteLLM by its own command, with a guard in front of its application.

``launch.py PAGE ...``: ``PAGE`` is JSON with ``limits``, ``paths`` and ``open`` (the fields of ``guard.Limits`` and
``guard.Doors``), and ``drain_s``, the seconds that running answers have when it is ended; what follows are the
command's own arguments. The key is LiteLLM's, in its environment. Exit code 78: starting it again would not help.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from guard import Doors, Guard, Limits, watched

APPLICATION = "litellm.proxy.proxy_server:app"
PAGE, KEY = "PROVISION_GUARD_PAGE", "LITELLM_MASTER_KEY"
"""Variables of the environment: workers are processes of their own and have nothing else."""
DRAIN_S = 10
"""Where the page is an earlier version's, which does not say it."""
CANNOT_START = 78
"""EX_CONFIG of sysexits.h; the unit does not restart after it."""


def main(arguments: Sequence[str]) -> None:
    """Serve until systemd ends it."""
    os.environ[PAGE], *rest = arguments
    sys.argv = ["litellm", *rest]
    server = importlib.import_module("uvicorn")
    server.run = guarded(server.run)
    importlib.import_module("litellm").run_server()


def guarded(run: Callable[..., None]) -> Callable[..., None]:
    """``uvicorn.run`` that serves LiteLLM's application behind the guard, and no other."""

    @functools.wraps(run)
    def run_guarded(app: Any, **options: Any) -> None:
        if app != APPLICATION:
            sys.stderr.write(f"Unable to guard LiteLLM: it serves {app} and not {APPLICATION}.\n")
            raise SystemExit(CANNOT_START)
        page = read_page()
        name, head = Path(__file__).stem, Limits(**page["limits"]).headers
        options["timeout_graceful_shutdown"] = page.get("drain_s", DRAIN_S)
        # Without websockets, which go past the guard: a request for one is a request like any other.
        guard = {"http": f"{name}:connection", "h11_max_incomplete_event_size": head, "ws": "none"}
        run(f"{name}:application", factory=True, **options, **guard)

    return run_guarded


def application() -> Guard:
    """LiteLLM's application behind the guard; uvicorn asks for it in each worker."""
    module, _, name = APPLICATION.partition(":")
    page = read_page()
    doors = Doors(os.environ[KEY], frozenset(page["paths"]), frozenset(page["open"]))
    return Guard(getattr(importlib.import_module(module), name), Limits(**page["limits"]), doors)


def connection(**words: Any) -> Any:
    """One of uvicorn's connections, which waits for a request's head no longer than the page says."""
    return _connections()(**words)


@functools.cache
def _connections() -> Any:
    server = importlib.import_module("uvicorn.protocols.http.h11_impl").H11Protocol
    return watched(server, Limits(**read_page()["limits"]))


def read_page() -> dict[str, Any]:
    """What the guard is to know, as the role wrote it."""
    page: dict[str, Any] = json.loads(Path(os.environ[PAGE]).read_text(encoding="utf-8"))
    return page


if __name__ == "__main__":
    main(sys.argv[1:])
