"""Files of this machine that others named or wrote: read only where they are files, and no further than a limit.

A FIFO, a terminal and ``/dev/zero`` have no end; to open the first already waits for somebody who writes.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

MOST_BYTES = 16_000_000
"""What a file holds at most where its reader says nothing else."""


def open_file(path: Path) -> BufferedReader:
    """The file for reading; ``OSError`` when it cannot be opened, and when it is a device, a FIFO or a folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(descriptor, "rb")


def content_of(path: Path, most: int = MOST_BYTES) -> bytes:
    """All bytes of the file; ``OSError`` as above, and for one that holds more than ``most``."""
    with open_file(path) as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return content


def text_of(path: Path, most: int = MOST_BYTES) -> str:
    """All text of the file; ``OSError`` as above, ``UnicodeDecodeError`` where it is no UTF-8."""
    return content_of(path, most).decode("utf-8")
