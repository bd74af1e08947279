"""Keeps the key that a server had beside the one that it gets, and says as JSON until when which former key is taken.

``former_key.py KEY_FILE FORMER_FILE GRACE_S`` reads the new key from standard input and writes FORMER_FILE where
KEY_FILE has another one; its time begins then. With ``--look`` nothing is read and written, and KEY_FILE counts.
What is said are checksums: of what ``X-Api-Key`` and ``Authorization`` say with the former key.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

SCHEME = "Bearer "


def key_in(file: Path) -> str:
    """The key in a file; nothing where there is no file."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""


def keep(key_file: Path, former_file: Path) -> None:
    """Have the former file hold what the key file holds, for the same account alone, with the present as its time."""
    owner = key_file.stat()
    descriptor, name = tempfile.mkstemp(dir=former_file.parent, prefix=f".{former_file.name}.")
    written = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f"{key_in(key_file)}\n")
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
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
    key_file, former_file, grace_s = words[-3:]
    files = Path(key_file), Path(former_file)
    before = key_in(files[0])
    key = before if only_look else sys.stdin.read().strip()
    if key and before and key != before:
        keep(*files)
    json.dump(told(key, files[1], int(grace_s)), sys.stdout)


if __name__ == "__main__":
    main()
