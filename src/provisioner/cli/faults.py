"""Faults of the operating system in words: a full disk, a place that can only be read, a folder of others.

Every verb writes somewhere: the lab's ``.provision/``, the cache, what is learned, files that were asked for. Where it
failed is told by the error itself, or follows from which of these places is full.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from provisioner.values import paths
from provisioner.values.errors import PreflightError, ProvisionError

WAYS_OUT = {
    errno.ENOSPC: "Make room on its file system: df -h {place}; df -i {place}",
    errno.EDQUOT: "The user's quota is used up: quota -s. Delete something, or have it raised.",
    errno.EROFS: "Its file system can only be read: findmnt --target {place}. Mount it writable, or name another place "
    "(XDG_CACHE_HOME, XDG_STATE_HOME; .provision/ lies beside the file).",
    errno.EACCES: "This user may not: ls -ld {place}. Run it as the user whose it is, or give it to this one.",
    errno.EPERM: "This user may not: ls -ld {place}; lsattr -d {place}",
    errno.EEXIST: "Something else has that name: move it away.",
    errno.ENOTDIR: "What should be a folder is something else: move it away.",
    errno.EISDIR: "A folder has the name of a file: move it away.",
    errno.ELOOP: "Its links lead to themselves: remove them.",
    errno.ENAMETOOLONG: "Move the lab to a shorter path.",
    errno.EIO: "The disk fails: dmesg",
    errno.EMFILE: "Too many files are open: ulimit -n 4096",
    errno.ENFILE: "Too many files are open on this machine: sysctl fs.file-max",
}
"""By what went wrong, what can be done about it; anything else is nothing that we foresee."""
LITTLE_BYTES = 1 << 16


def fault_of(error: Exception, *, begun: bool) -> ProvisionError | None:
    """The error in the user's words; None where it is none of these. ``begun``: something was changed before."""
    if not isinstance(error, OSError) or error.errno not in WAYS_OUT:
        return None
    kind = ProvisionError if begun else PreflightError
    places = _places(error)
    return kind(
        f"Unable to use {' or '.join(places)}" if places else "Unable to write a file",
        details=os.strerror(error.errno),
        resolution=way_out(error),
    )


def way_out(error: OSError) -> str:
    """What can be done about it; nothing where we do not know."""
    if error.errno not in WAYS_OUT:
        return ""
    places = _places(error)
    way = WAYS_OUT[error.errno].format(place=_there(places[0]) if places else "")
    return way.replace(" ;", ";").rstrip()


def _places(error: OSError) -> list[str]:
    """Where it happened, or may have: what is written through an open file does not say where that is."""
    if isinstance(error.filename, str | bytes):
        return [os.fsdecode(error.filename)]
    return list(_full_places()) if error.errno in (errno.ENOSPC, errno.EDQUOT) else []


def _full_places() -> Iterator[str]:
    lab = Path.cwd() / ".provision"
    for place in (Path.cwd(), lab, paths.cache(), paths.state(""), Path(tempfile.gettempdir()), Path("/dev/shm")):  # noqa: S108
        if _is_full(place):
            yield str(place)


def _is_full(place: Path) -> bool:
    try:
        found = os.statvfs(_there(str(place)))
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < LITTLE_BYTES or (found.f_files > 0 and found.f_favail == 0)


def _there(place: str) -> str:
    """The place, or the nearest folder above it that exists."""
    found = Path(place)
    while place and not os.path.lexists(found) and found != found.parent:
        found = found.parent
    return str(found)
