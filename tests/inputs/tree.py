"""The files of a checkout, by their paths relative to its root, and what is in them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path, PurePosixPath

NOT_OURS = frozenset({".git", ".venv", ".provision", ".cache", ".ansible", "__pycache__", "dist", "build"})
"""Folders with what was made here and does not belong to the checkout; in a work tree of git, `.git` is a file."""


class Tree:
    """A checkout as it is now; a file is read once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._digests: dict[str, str] = {}

    @cached_property
    def files(self) -> frozenset[str]:
        """The paths of all files that belong to the checkout."""
        return frozenset(self._walk())

    @cached_property
    def by_name(self) -> dict[str, tuple[str, ...]]:
        """All files with a name, by that name."""
        found: dict[str, list[str]] = {}
        for file in sorted(self.files):
            found.setdefault(PurePosixPath(file).name, []).append(file)
        return {name: tuple(files) for name, files in found.items()}

    @cached_property
    def by_folder(self) -> dict[str, tuple[str, ...]]:
        """All files below a folder, however deep, by that folder's path."""
        found: dict[str, list[str]] = {}
        for file in sorted(self.files):
            for folder in PurePosixPath(file).parents:
                found.setdefault(str(folder), []).append(file)
        return {folder: tuple(files) for folder, files in found.items()}

    @cached_property
    def folders_by_name(self) -> dict[str, tuple[str, ...]]:
        """The paths of all folders with a name, by that name."""
        found: dict[str, list[str]] = {}
        for folder in self.by_folder:
            found.setdefault(PurePosixPath(folder).name, []).append(folder)
        return {name: tuple(folders) for name, folders in found.items()}

    def below(self, folder: str) -> tuple[str, ...]:
        """All files below a folder; nothing where there is none."""
        return self.by_folder.get(folder, ())

    def folders_in(self, folder: str) -> list[str]:
        """The folders that lie in a folder itself."""
        return sorted(one for one in self.by_folder if one != "." and str(PurePosixPath(one).parent) == folder)

    def text(self, file: str) -> str:
        """What is in a file; what is no UTF-8 is replaced."""
        return (self.root / file).read_text(encoding="utf-8", errors="replace")

    def digest(self, file: str) -> str:
        """SHA-256 over a file's content and whether it can be executed."""
        if file not in self._digests:
            path = self.root / file
            executable = bool(path.stat().st_mode & 0o100)
            self._digests[file] = hashlib.sha256(f"{executable}\0".encode() + path.read_bytes()).hexdigest()
        return self._digests[file]

    def digest_of(self, files: Iterable[str], *more: str) -> str:
        """SHA-256 over the names and contents of files, and over ``more``."""
        total = hashlib.sha256()
        for file in sorted(files):
            total.update(f"{file}\0{self.digest(file)}\n".encode())
        for text in more:
            total.update(f"{text}\n".encode())
        return total.hexdigest()

    def _walk(self) -> Iterator[str]:
        for folder, folders, files in os.walk(self.root):
            folders[:] = [name for name in folders if not _is_made(name)]
            place = Path(folder).relative_to(self.root)
            for name in files:
                if name not in NOT_OURS and (self.root / place / name).is_file():
                    yield (place / name).as_posix()


def _is_made(folder: str) -> bool:
    return folder in NOT_OURS or folder.endswith(("_cache", ".egg-info"))
