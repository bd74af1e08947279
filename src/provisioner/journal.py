"""What a run did, written down line by line while it goes, so that the next one can say where a killed one stopped.

Nothing is decided by a journal: what has to be done follows from the lab as it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from provisioner.events import ApplyComplete, ApplyErrored, ApplyStart, Event

FOLDER = "journal"
KEPT = 20
END = "end"


@contextmanager
def recording(folder: Path, verb: str, emit: Callable[[Event], None]) -> Iterator[Callable[[Event], None]]:
    """``emit`` that also writes what begins, ends and fails to a journal in ``folder`` (the lab's ``.provision/``)."""
    place = folder / FOLDER
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in sorted(place.glob("*.jsonl"))[: -KEPT + 1]:
        old.unlink(missing_ok=True)  # another run may have been faster
    now = datetime.now(UTC)
    with (place / f"{now:%Y%m%dT%H%M%S.%f}-{os.getpid()}.jsonl").open("x", encoding="utf-8") as file:
        _write(file, {"type": "begin", "verb": verb, "at": now.isoformat(timespec="seconds"), "pid": os.getpid()})

        def record(event: Event) -> None:
            if isinstance(event, ApplyStart | ApplyComplete | ApplyErrored):
                _write(file, {"type": type(event).__name__, **asdict(event)})
            emit(event)

        try:
            yield record
        except KeyboardInterrupt:
            _write(file, {"type": "interrupted"})
            raise
        except Exception as error:
            _write(file, {"type": END, "error": type(error).__name__})
            raise
        _write(file, {"type": END})


def interrupted(folder: Path) -> str:
    """What the last run was doing when it was interrupted or killed, in words; "" when it came to its end."""
    journals = sorted((folder / FOLDER).glob("*.jsonl"))
    lines = _lines(journals[-1]) if journals else []
    if not lines or lines[-1]["type"] == END:
        return ""
    open_works: dict[str, str] = {}
    for line in lines:
        if line["type"] == "ApplyStart":
            open_works[line["target"]] = line["action"]
        elif line["type"] in ("ApplyComplete", "ApplyErrored"):
            open_works.pop(line["target"], None)
    doing = ", ".join(f"{action} {target}" for target, action in open_works.items())
    return f"{lines[0]['verb']} of {lines[0]['at']} did not come to its end" + (f", while at: {doing}" if doing else "")


def _write(file: IO[str], line: dict[str, Any]) -> None:
    file.write(json.dumps(line) + "\n")
    file.flush()


def _lines(journal: Path) -> list[dict[str, Any]]:
    """All whole lines: the last one of a killed run may be cut."""
    found = []
    for text in journal.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            break
        if isinstance(line, dict) and "type" in line:
            found.append(line)
    return found if found and "verb" in found[0] else []
