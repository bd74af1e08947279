"""Serves upstream's Pipelines server, with a guard in front of it.

``launch.py PAGE --port NUMBER``: ``PAGE`` is JSON, as the role wrote it: ``source`` (the folder of the server),
``folder`` (that of the pipelines), ``guard``, ``paths`` and ``open`` (the fields of ``guard.Limits`` and
``guard.Doors``), and ``drain_s``, the seconds that running answers have when it is ended. The key is in the
environment. Exit code 78: starting it again would not help.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from guard import Application, Doors, Guard, Limits, Message, Receive, Send, is_worth_a_line, watched

CANNOT_START = 78
"""EX_CONFIG of sysexits.h; the unit does not restart after it."""
APPLICATION, KEY = "main", "PIPELINES_API_KEY"
HEALTH, STATUS = "/health", "/"
"""Where it is asked whether it serves, and which of upstream's pages says it."""
LOADER, LOADED = "load_module_from_path", "module_name"
"""Upstream's function that loads a file, and its variable with the name of the file without its end."""
FORMS, QUESTION, STREAMED = "schemas", "OpenAIChatCompletionForm", "stream"
"""Upstream's description of a question, and its word for an answer in parts."""
SILENT = {"GLOBAL_LOG_LEVEL": "WARNING"}
"""At INFO it writes what people ask and what they are answered."""


def main(words: Sequence[str]) -> None:
    """Serve until systemd ends it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("page", type=Path)
    parser.add_argument("--port", type=int, required=True)
    asked = parser.parse_args(words)
    try:
        page = json.loads(asked.page.read_text(encoding="utf-8"))
        limits = Limits(**page["guard"])
        doors = Doors(os.environ[KEY], frozenset(page["paths"]), frozenset(page["open"]))
        served = Served(application_of(page), Path(page["folder"]))
    except (OSError, ImportError, AttributeError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"Unable to start the Pipelines server: {asked.page} or its source is damaged: {error!r}\n")
        sys.exit(CANNOT_START)
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    logging.getLogger("uvicorn.access").addFilter(is_worth_a_line)
    config = uvicorn.Config(
        Guard(served, limits, doors),
        host="127.0.0.1",
        port=asked.port,
        http=watched(H11Protocol, limits),
        h11_max_incomplete_event_size=limits.headers,
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=page["drain_s"],
    )
    server = uvicorn.Server(config)
    with suppress(SystemExit):  # its own word for a start that failed
        server.run()
    if not server.started:
        # The last line of the journal is what people are told. Another attempt may help: an engine may come later.
        sys.exit(f"Unable to start the Pipelines server: {served.failure}")


def application_of(page: dict[str, Any]) -> Application:
    """Upstream's application, which finds the pipelines in their folder."""
    os.environ.update(SILENT, PIPELINES_DIR=page["folder"])
    sys.path.insert(0, page["source"])
    answer_whole_unless_asked()
    return importlib.import_module(APPLICATION).app  # type: ignore[no-any-return]  # whatever it is, it is ASGI


def answer_whole_unless_asked() -> None:
    """Have a question that says nothing of streaming answered whole, as OpenAI's API has it.

    Upstream streams then, which a gateway that left the word out takes for a damaged answer.
    """
    question = getattr(importlib.import_module(FORMS), QUESTION)
    question.model_fields[STREAMED].default = False
    question.model_rebuild(force=True)


class Served:
    """Upstream's application, of whose start ``failure`` says what went wrong."""

    def __init__(self, application: Application, folder: Path) -> None:
        self._application, self._folder = application, folder
        self.failure = "it did not say why."

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass everything on; the page that says whether it serves is upstream's own under another path."""
        if scope["type"] == "lifespan":
            await self._start(scope, receive, send)
        elif scope.get("path") == HEALTH:
            await self._application({**scope, "path": STATUS, "raw_path": STATUS.encode()}, receive, send)
        else:
            await self._application(scope, receive, send)

    async def _start(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            await self._application(scope, receive, send)
        except BaseException as error:
            self.failure = told(error, self._folder)
            raise


def told(error: BaseException, folder: Path) -> str:
    """Which pipeline could not be loaded, in which line of it, and why.

    Upstream moves such a file away and serves on without it. It may not write there, so that it fails instead, and
    what the pipeline had said is the context of what it says itself.
    """
    name = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == LOADER:
            name = str(frame.f_locals.get(LOADED, ""))
    first: BaseException = error
    while first.__context__ is not None:
        first = first.__context__
    line = 0
    for frame, number in traceback.walk_tb(first.__traceback__):
        file = Path(frame.f_code.co_filename)
        if file.parent == folder:
            name, line = name or file.stem, number
    if isinstance(first, SyntaxError):
        line = first.lineno or 0
    where = f"{name}.py" if name else "a pipeline"
    place = f"{where}, line {line}" if line else where
    return f"{place} could not be loaded: {type(first).__name__}: {first}"


if __name__ == "__main__":
    main(sys.argv[1:])
