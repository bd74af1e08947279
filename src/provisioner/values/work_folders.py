"""Folders of a running process, and what killed ones left of theirs, in places that others may write to, too.

Whoever may write there can leave links, files and folders with our names: only a real folder of this user is ours.
Several runs may sweep the same leftovers at once: what has gone meanwhile is what was wanted.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

ATTEMPTS = 100
"""Each finds that another process was faster with a part of the folder."""


@contextmanager
def own_folder(parent: Path, kind: str) -> Iterator[Path]:
    """A private folder of this process, removed after; what killed runs of the same user left goes, too."""
    sweep(parent, kind)
    private = Path(tempfile.mkdtemp(prefix=f"{kind}-{os.getpid()}-", dir=parent))
    try:
        yield private
    finally:
        remove(private)


def sweep(parent: Path, kind: str) -> None:
    """Remove this user's own folders of that kind whose processes have ended."""
    for left in list(parent.iterdir()):
        found = re.fullmatch(rf"{re.escape(kind)}-([0-9]{{1,10}})-.*", left.name, re.ASCII | re.DOTALL)
        if found and not Path("/proc", found[1]).exists() and _is_own_folder(left):
            remove(left)


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it; a part that is gone, or the whole of it, is success."""
    for _ in range(ATTEMPTS):
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            if not os.path.lexists(folder):
                return
        else:
            return


def prune(files: Iterable[Path], kept: int) -> None:
    """Remove all but the newest ``kept``; those that another run removes meanwhile are gone."""
    found = by_age(files)
    for old in found[: max(0, len(found) - kept)]:
        old.unlink(missing_ok=True)


def by_age(files: Iterable[Path]) -> list[Path]:
    """Those that are there, the oldest first."""
    ages = sorted((age, file) for file in files if (age := _written_at(file)) is not None)
    return [file for _, file in ages]


def _is_own_folder(path: Path) -> bool:
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.getuid()


def _written_at(file: Path) -> int | None:
    try:
        return file.lstat().st_mtime_ns
    except FileNotFoundError:
        return None
