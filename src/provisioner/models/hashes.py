"""The sha256 of files on this machine, each taken once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from provisioner.values import paths
from provisioner.values.errors import InputError
from provisioner.values.regular_files import open_file, text_of

PIECE = 1 << 20


def sha256_of(file: Path, on_read: Callable[[int], None] = lambda _bytes: None) -> str:
    """Return the file's sha256; one that was not touched since it was hashed is not read again (10 s for 6 GiB).

    ``on_read`` is told after each piece how many bytes were read by then. Raises ``InputError`` where the file was
    changed meanwhile: the sum is of no file then.
    """
    identity = _identity(file)
    note = paths.cache() / "hashes" / hashlib.sha256(identity.encode()).hexdigest()
    if note.is_file():
        return text_of(note)
    hasher, read = hashlib.sha256(), 0
    with open_file(file) as stream:
        while piece := stream.read(PIECE):
            hasher.update(piece)
            read += len(piece)
            on_read(read)
    if _identity(file) != identity:
        hint = "Run it again once nobody writes to it."
        raise InputError(f"Unable to take the sha256 of {file}: it was changed while it was read", resolution=hint)
    digest = hasher.hexdigest()
    note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = note.with_suffix(f".{os.getpid()}")
    partial.write_text(digest, encoding="ascii")
    partial.replace(note)
    return digest


def _identity(file: Path) -> str:
    """Return the text that is another one once the file was touched."""
    seen = file.stat()
    return f"{file}\0{seen.st_size} {seen.st_mtime_ns} {seen.st_ctime_ns} {seen.st_ino} {seen.st_dev}"
