"""The compiled catalog of a checkout, stored in its ``.cache/`` until one of the roles' files changes."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from provisioner.values.regular_files import open_file

SETTLED_NS = 2_000_000_000
"""Files that were changed so lately may change once more and bear the same times: nothing is kept of them."""
MOST_BYTES = 16_000_000


def key_of(folders: Sequence[Path]) -> str:
    """A digest of the names, sizes and times of all files in the folders; empty where some of them changed just now.

    Raises ``OSError`` where a file is gone before it could be looked at.
    """
    digest = hashlib.sha256()
    newest = 0
    for top in folders:
        for folder, inner, names in os.walk(top):
            inner[:] = sorted(name for name in inner if name != "__pycache__")
            for name in sorted(names):
                path = os.path.join(folder, name)  # noqa: PTH118  # pathlib takes four times as long as the look
                found = os.stat(path)  # noqa: PTH116  # ditto
                newest = max(newest, found.st_ctime_ns)
                digest.update(f"{path}\0{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}\0".encode())
    return digest.hexdigest() if newest < time.time_ns() - SETTLED_NS else ""


def read_kept(file: Path, key: str) -> Mapping[str, Any] | None:
    """Return the catalog stored under that key; None where there is none, or none that can be believed.

    Believed is a whole file that only those can write who own the checkout, and so could write its roles.
    """
    try:
        with open_file(file) as stream:
            found = os.fstat(stream.fileno())
            content = stream.read(MOST_BYTES)
        if found.st_uid != _owner(file) or stat.S_IMODE(found.st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
            return None
        head, _, body = content.partition(b"\n")
        if not key or head != _head(key, body):
            return None
        compiled = json.loads(body)
    except (OSError, ValueError, RecursionError):
        return None
    return compiled if isinstance(compiled, dict) else None


def keep(file: Path, key: str, compiled: Mapping[str, Any]) -> None:
    """Keep it for the next command; where nothing can be written, each command compiles for itself.

    Only for the owner of the checkout: what root writes into somebody's folder, its owner cannot remove.
    """
    if not key or os.geteuid() != _owner(file):
        return
    import tempfile  # nothing that reading needs

    body = json.dumps(compiled).encode()
    with suppress(OSError):
        file.parent.mkdir(exist_ok=True)
        descriptor, written = tempfile.mkstemp(dir=file.parent, prefix=f"{file.name}-")
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(_head(key, body) + b"\n" + body)
            Path(written).replace(file)
        except OSError:
            Path(written).unlink()


def _owner(file: Path) -> int:
    """Return the user id of the owner of the checkout that has the file in its ``.cache/``."""
    return file.parents[1].stat().st_uid


def _head(key: str, body: bytes) -> bytes:
    return f"{key} {hashlib.sha256(body).hexdigest()}".encode()
