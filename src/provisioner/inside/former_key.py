"""Keeps the key that a server had beside the one that it gets, and says as JSON until when which former key is taken.

``former_key.py RUNNING_FILE KEY_FILE FORMER_FILE GRACE_S`` reads the new key from standard input and writes FORMER_FILE
where the server runs with another one; its time begins then. The first line of RUNNING_FILE is what it runs with; if it
does not run, KEY_FILE says what it ran with. With ``--look`` nothing is read and written, and KEY_FILE counts.
What is said are checksums: of what ``X-Api-Key`` and ``Authorization`` say with the former key.

A key is the first line of its file or, in a file as tabbyAPI reads it, what stands behind ``api_key:``. Roles of
engines run this in their containers; it needs Python 3.10 and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SCHEME = "Bearer "
NAME = "api_key: "
READERS = 0o640
"""Those who may read a key may read the one before it; nobody else."""


def key_in(file: Path) -> str:
    """The first key in a file; nothing where there is no file, or none in it."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    named = [line.removeprefix(NAME) for line in lines if line.startswith(NAME)]
    if not named:
        return lines[0].strip() if lines else ""
    try:
        key = json.loads(named[0])
    except ValueError:
        return ""
    return key if isinstance(key, str) else ""


def is_odd(file: Path, sources: Iterable[Path]) -> bool:
    """Whether a former file is there that others may read, or that belongs to nobody who has one of the sources."""
    if not file.exists():
        return False
    owners = {(source.stat().st_uid, source.stat().st_gid) for source in sources if source.exists()}
    state = file.stat()
    return bool(stat.S_IMODE(state.st_mode) & ~READERS) or (state.st_uid, state.st_gid) not in owners


def keep(source: Path, former_file: Path) -> None:
    """Have the former file hold the source's key, for the same accounts alone, with the present as its time."""
    owner = source.stat()
    descriptor, name = tempfile.mkstemp(dir=former_file.parent, prefix=f".{former_file.name}.")
    written = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f"{key_in(source)}\n")
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            os.fchmod(file.fileno(), owner.st_mode & READERS)
        written.replace(former_file)
    except OSError:
        written.unlink(missing_ok=True)
        raise


def told(key: str, former_file: Path, grace_s: int) -> list[dict[str, Any]]:
    """The former key by its checksums, and the moment at which its time is over; nothing where there is none.

    A server without a key takes every request, and one that has its former key again takes that.
    """
    former = key_in(former_file)
    if not key or not former or former == key:
        return []
    checksums = [hashlib.sha256(text.encode()).hexdigest() for text in (former, SCHEME + former)]
    return [{"sha256": checksums, "until": int(former_file.stat().st_mtime) + grace_s}]


def main() -> None:
    """Keep and tell."""
    words = sys.argv[1:]
    only_look = words[0] == "--look"
    running_file, key_file, former_file = map(Path, words[-4:-1])
    source = running_file if running_file.exists() else key_file
    if not only_look and is_odd(former_file, (running_file, key_file)):
        former_file.unlink()  # somebody wrote it by hand
    before = key_in(source)
    key = key_in(key_file) if only_look else sys.stdin.read().strip()
    if not only_look and key and before and key != before:
        keep(source, former_file)
    json.dump(told(key, former_file, int(words[-1])), sys.stdout)


if __name__ == "__main__":
    main()
