"""The sockets over which processes of one user share a connection of ``ssh``."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from provisioner.errors import UnavailableError

SOCKET_PATH_BYTES = 108 - 1 - 17
"""A socket's path has 108 bytes; ssh adds 17 characters while it makes one."""
NAME_BYTES = 16


def folder() -> Path:
    """A folder of this user's alone, with a short path."""
    runtime, mine = os.environ.get("XDG_RUNTIME_DIR"), f"provision-{os.getuid()}"
    candidates = [Path(runtime, "provision")] if runtime and Path(runtime).is_dir() else []
    candidates += [Path(tempfile.gettempdir(), mine), Path("/tmp", mine)]  # noqa: S108 - checked below
    found = next(one for one in candidates if len(os.fsencode(one)) + 1 + NAME_BYTES <= SOCKET_PATH_BYTES)
    with suppress(FileExistsError):
        found.mkdir(mode=0o700)
    status = found.lstat()
    if found.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o077:
        details = "Somebody else could use connections that are shared there."
        raise UnavailableError(f"Unable to use folder {found}", details=details, resolution=f"Remove {found}.")
    return found


def answers(path: Path) -> bool:
    """Whether a connection is shared there; what a dead ``ssh`` has left is removed."""
    with socket.socket(socket.AF_UNIX) as end:
        try:
            end.connect(str(path))
        except FileNotFoundError:
            return False
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return False
    return True


@contextmanager
def turn(path: Path) -> Iterator[None]:
    """One at a time connects; the others wait and then share."""
    with path.with_name(f"{path.name}.turn").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
