"""Files that are replaced as a whole: an interrupted run leaves either the old one or the new one."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from provisioner.values.errors import InputError

PRIVATE = 0o600


def replace_text(file: Path, text: str, mode: int = PRIVATE) -> None:
    """Write ``text`` in the place of what the file holds; whose owner keeps it; ``InputError`` where that fails."""
    try:
        partial = _written_beside(file, text)
        try:
            if file.exists():
                owner = file.stat()
                os.chown(partial, owner.st_uid, owner.st_gid)
            partial.chmod(stat.S_IMODE(mode))
            partial.replace(file.resolve())
        except OSError:
            partial.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise unwritable(file, error) from error


def require_room(file: Path, text: str) -> None:
    """Try whether the file's place has room for ``text``, and leave nothing of it; ``InputError`` where it has none."""
    try:
        _written_beside(file, text).unlink()
    except OSError as error:
        raise unwritable(file, error) from error


def _written_beside(file: Path, text: str) -> Path:
    """A file of ours beside that one that holds ``text``; nothing of it is left where it cannot be written."""
    handle, name = tempfile.mkstemp(dir=file.resolve().parent, prefix=f".{file.name}-")  # 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)


def unwritable(file: Path | str, error: OSError) -> InputError:
    """The error that says which file could not be written, and why."""
    return InputError(f"Unable to write {file}", details=error.strerror or str(error))
