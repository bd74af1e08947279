"""The sha256 of files on this machine, each taken once."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from provisioner.values import paths
from provisioner.values.regular_files import open_file, text_of


def sha256_of(file: Path) -> str:
    """The file's sha256; one that was not touched since it was hashed is not read again (10 s for 6 GiB)."""
    seen = file.stat()
    identity = f"{file}\0{seen.st_size} {seen.st_mtime_ns} {seen.st_ctime_ns} {seen.st_ino} {seen.st_dev}"
    note = paths.cache() / "hashes" / hashlib.sha256(identity.encode()).hexdigest()
    if note.is_file():
        return text_of(note)
    with open_file(file) as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = note.with_suffix(f".{os.getpid()}")
    partial.write_text(digest, encoding="ascii")
    partial.replace(note)
    return digest
