"""The sockets over which processes of one user share a connection of ``ssh``."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from provisioner.values.errors import UnavailableError

SOCKET_PATH_BYTES = 108 - 1 - 17
"""A socket's path has 108 bytes; ssh adds 17 characters while it makes one."""
NAME_BYTES = 16


def folder() -> Path:
    """A folder of this user's alone, with a short path."""
    candidates = [path for path in _candidates() if _has_room(path)]
    # Anybody may have taken a name in /tmp; that must not keep us from working where we have another place.
    chosen = next(filter(_is_ours, candidates), candidates[-1])
    if not _is_ours(chosen) or chosen.lstat().st_mode & 0o077:
        details = "Somebody else could use connections that are shared there."
        raise UnavailableError(f"Unable to use folder {chosen}", details=details, resolution=f"Remove {chosen}.")
    return chosen


def _candidates() -> list[Path]:
    """The folders that may be used, the best first."""
    candidates: list[Path] = []
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        candidates.append(Path(runtime, "provision"))
    if os.getuid() == 0:
        candidates.append(Path("/run/provision"))
    name = f"provision-{os.getuid()}"
    return [*candidates, Path(tempfile.gettempdir(), name), Path("/tmp", name)]  # noqa: S108 - checked below


def _has_room(path: Path) -> bool:
    """Whether a socket in the folder has a path that is not too long."""
    return len(os.fsencode(path)) + 1 + NAME_BYTES <= SOCKET_PATH_BYTES


def _is_ours(path: Path) -> bool:
    """Whether this is a folder of this user, made where there was nothing; a link is none."""
    with suppress(OSError):
        path.mkdir(mode=0o700)
    try:
        seen = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.getuid()


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
