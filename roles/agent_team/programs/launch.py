"""Serves a team of agents, with a guard in front of it.

``launch.py PAGE --port NUMBER``: ``PAGE`` is JSON, as the role wrote it: the team, ``guard``, ``paths`` and ``open``
(the fields of ``guard.Limits`` and ``guard.Doors``), and ``drain_s``, the seconds that running answers have when it is
ended. Keys are in the environment, in variables that the page names. Exit code 78: starting it again would not help.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from guard import Doors, Guard, Limits, is_worth_a_line, watched

CANNOT_START = 78
"""EX_CONFIG of sysexits.h; the unit does not restart after it."""


def main(words: Sequence[str]) -> None:
    """Serve until systemd ends it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("page", type=Path)
    parser.add_argument("--port", type=int, required=True)
    asked = parser.parse_args(words)
    # The libraries would send what is asked to OpenAI, and take addresses from the environment.
    os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
    try:
        page = json.loads(asked.page.read_text(encoding="utf-8"))
        guarded, limits = guarded_team(page)
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"Unable to start the team: {asked.page} or a key is not as it should be: {error!r}\n")
        sys.exit(CANNOT_START)
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    logging.getLogger("uvicorn.access").addFilter(is_worth_a_line)
    uvicorn.run(
        guarded,
        host="127.0.0.1",
        port=asked.port,
        http=watched(H11Protocol, limits),
        h11_max_incomplete_event_size=limits.headers,
        ws="none",
        timeout_graceful_shutdown=page["drain_s"],
    )


def guarded_team(page: dict[str, Any]) -> tuple[Guard, Limits]:
    """The team behind its guard, and the guard's limits."""
    from serve import application, service_of  # takes seconds

    limits = Limits(**page["guard"])
    doors = Doors(os.environ[page["key_variable"]], frozenset(page["paths"]), frozenset(page["open"]))
    return Guard(application(service_of(page, os.environ)), limits, doors), limits


if __name__ == "__main__":
    main(sys.argv[1:])
