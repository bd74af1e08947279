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
        # Written anew beside the old one and renamed.
        handle, partial = tempfile.mkstemp(dir=file.resolve().parent, prefix=f".{file.name}-")  # 0600
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            if file.exists():
                owner = file.stat()
                os.chown(partial, owner.st_uid, owner.st_gid)
            Path(partial).chmod(stat.S_IMODE(mode))
            Path(partial).replace(file.resolve())
        except OSError:
            Path(partial).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise unwritable(file, error) from error


def unwritable(file: Path | str, error: OSError) -> InputError:
    """The error that says which file could not be written, and why."""
    return InputError(f"Unable to write {file}", details=error.strerror or str(error))
