"""What is remembered of the last time that a part of the tests passed, in the cache of this machine."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Pass:
    """One time that all tests of a part passed."""

    digest: str
    """The inputs with which they did (see ``digests``)."""
    at: float
    """When (Unix time)."""
    tests: int
    """How many there are in it."""
    ran: int
    """How many of them were not skipped."""


@dataclass(frozen=True)
class Record:
    """The last passes of a part."""

    latest: Pass | None = None
    everything: Pass | None = None
    """The last one with ``--all``."""


def read_record(folder: Path, part: str) -> Record:
    """What is remembered of a part; nothing where it never passed here, or where what is there cannot be read."""
    try:
        kept = json.loads(_file(folder, part).read_bytes())
        return Record(*(Pass(**kept[name]) if kept[name] else None for name in ("latest", "everything")))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return Record()  # of another version, or half written: the part is run again


def write_pass(folder: Path, part: str, passed: Pass, *, everything: bool) -> None:
    """Remember that a part passed just now."""
    before = read_record(folder, part)
    record = Record(passed, passed if everything else before.everything)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as file:
        json.dump(asdict(record), file)
    Path(file.name).replace(_file(folder, part))


def _file(folder: Path, part: str) -> Path:
    return folder / f"{part.replace('/', '+')}.json"
