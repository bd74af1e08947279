"""Modules as Ansible has packed them, kept between runs: packing one takes longer than running it.

Ansible packs a module together with the library that it imports, once in each run, and keeps that in a folder of the
run. What is kept here counts only as long as no file that it could have been packed from has changed.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

FOLDERS_KEPT = 4
"""So many states of the files: of two versions of ansible-core, say, and of a checkout that is worked on."""
FILES_KEPT = 200
_OF_ANSIBLE = re.compile(r"ansible\.(modules|legacy)\.[\w.~-]+")
"""What is packed from a collection comes from folders that nobody has looked at."""
_UNFINISHED = (".lock", "-part")


def folder_of(cache: Path, version: str, sources: Iterable[Path]) -> Path:
    """Where modules are kept that this version of Ansible packs from what lies in these folders now."""
    digest = hashlib.sha256(f"{version} {platform.python_version()}".encode())
    for root in sources:
        for folder, names, files in os.walk(root, followlinks=True):
            names.sort()
            for name in sorted(files):
                path = Path(folder, name)
                seen = path.stat()
                digest.update(f"\n{path} {seen.st_size} {seen.st_mtime_ns}".encode(errors="surrogateescape"))
    return cache / "packed-modules" / digest.hexdigest()[:32]


def bring(kept: Path, run: Path) -> None:
    """Lay what is kept into the run's folder; what is not whole, or could be somebody else's, is removed."""
    if not _is_ours_alone(kept):
        return
    run.mkdir(parents=True, exist_ok=True)
    for file in kept.iterdir():
        name, _, digest = file.name.rpartition("@")
        content = file.read_bytes() if _is_ours_alone(file) else b""
        if name and hashlib.sha256(content).hexdigest() == digest:
            (run / name).write_bytes(content)
        else:
            file.unlink(missing_ok=True)
    os.utime(kept)


def keep(run: Path, kept: Path) -> None:
    """Keep what the run has packed, and of other states of the files only the newest."""
    if not run.is_dir():
        return
    kept.mkdir(mode=0o700, parents=True, exist_ok=True)
    known = {file.name.rpartition("@")[0] for file in kept.iterdir()}
    for file in run.iterdir():
        if file.name in known or file.name.endswith(_UNFINISHED) or not _OF_ANSIBLE.fullmatch(file.name):
            continue
        if len(known) >= FILES_KEPT:
            break
        _write(kept, file.name, file.read_bytes())
        known.add(file.name)
    others = sorted((one for one in kept.parent.iterdir() if one != kept), key=lambda one: one.lstat().st_mtime_ns)
    for old in others[: max(0, len(others) - FOLDERS_KEPT + 1)]:
        shutil.rmtree(old, ignore_errors=True)  # another run may remove it, too


def _write(folder: Path, name: str, content: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as part:
        part.write(content)
    Path(part.name).replace(folder / f"{name}@{hashlib.sha256(content).hexdigest()}")


def _is_ours_alone(path: Path) -> bool:
    """Ansible unpickles what lies there: whoever may write it may run what he likes as this user."""
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return False
    is_plain = stat.S_ISDIR(seen.st_mode) or stat.S_ISREG(seen.st_mode)
    return is_plain and seen.st_uid == os.getuid() and not seen.st_mode & 0o022
