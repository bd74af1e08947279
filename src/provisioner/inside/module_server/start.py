"""Starts the module server in a container, unless one is there already; prints the reason when it cannot.

Carried to the container and run there: standard input has the server's program and the library that it shall load.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import sys
from _socket import AF_UNIX, SOCK_SEQPACKET, socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

LENGTH_DIGITS = 8
MINE_ALONE = 0o077
READY_S = 60
CONFIGURATION, LISTENER, READY, LIBRARY = 3, 4, 5, 6
"""The open files that the server finds."""
FIRST_FREE = 16
DIRECT_ENVIRONMENT = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_", "HOME=", "OPENSSL_")
"""How variables begin that make a process or its Python another one from its start; the server gets no others."""


def main(path: str, python: str, idle_s: str) -> None:
    """Start a server that listens at ``path`` and is run by ``python``."""
    program, digests, library = read_part(), read_part(), read_part()
    folder = private_folder(os.path.dirname(path))
    fcntl.flock(folder, fcntl.LOCK_EX)
    if is_served(path):
        return
    known = {"path": path, "idle_s": float(idle_s), "digests": json.loads(digests), "direct": DIRECT_ENVIRONMENT}
    listener = listening(path)
    ready, ready_end = os.pipe()
    files = {
        0: memory_file(program),
        CONFIGURATION: memory_file(json.dumps(known).encode()),
        LISTENER: listener.fileno(),
        READY: ready_end,
        LIBRARY: memory_file(library),
    }
    child = os.fork()
    if child == 0:
        become_server(python, files)
    os.close(ready_end)
    wait_until_ready(ready, child, path)


def listening(path: str) -> socket:
    """A socket of this name on which clients may wait from now on."""
    if os.path.lexists(path):
        os.unlink(path)  # of a server that was killed
    os.umask(MINE_ALONE)
    listener = socket(AF_UNIX, SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen()
    return listener


def read_part() -> bytes:
    """The next part of standard input: its length, then its bytes."""
    size = int(sys.stdin.buffer.read(LENGTH_DIGITS))
    return sys.stdin.buffer.read(size)


def private_folder(path: str) -> int:
    """Open the folder, which nobody but this user may enter; make it if it is missing."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    about = os.fstat(folder)
    if about.st_uid != os.getuid() or about.st_mode & MINE_ALONE:
        sys.exit(f"{path} is not root's alone")
    return folder


def is_served(path: str) -> bool:
    """Whether a server listens there."""
    try:
        socket(AF_UNIX, SOCK_SEQPACKET).connect(path)
    except (ConnectionRefusedError, FileNotFoundError):
        return False
    return True


def memory_file(content: bytes) -> int:
    """An open file that is in no folder."""
    descriptor = os.memfd_create("module-server", 0)
    with open(descriptor, "wb", closefd=False) as stream:
        stream.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def become_server(python: str, files: dict[int, int]) -> NoReturn:
    """Leave this session and all its files, and become the server."""
    environment = direct_environment()
    high = {number: fcntl.fcntl(descriptor, fcntl.F_DUPFD, FIRST_FREE) for number, descriptor in files.items()}
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(nothing, number)
    for number, descriptor in high.items():
        os.dup2(descriptor, number)
    os.closerange(max(files) + 1, max(high.values()) + 1)
    os.setsid()
    os.chdir("/")
    os.umask(0o022)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.execve(python, [python], environment)  # noqa: S606  # a shell has no part in it


def direct_environment() -> dict[bytes, bytes]:
    """The variables that the server needs, as this process began with them: Python adds some to its own."""
    beginnings = tuple(beginning.encode() for beginning in DIRECT_ENVIRONMENT)
    with open("/proc/self/environ", "rb") as stream:
        entries = stream.read().split(b"\0")
    environment: dict[bytes, bytes] = {}
    for entry in entries:
        if entry.startswith(beginnings):
            name, _, value = entry.partition(b"=")
            environment[name] = value
    return environment


def wait_until_ready(ready: int, child: int, path: str) -> None:
    """Return when the server has loaded its library; else end with the reason, and leave nothing."""
    said = b""
    if select.select([ready], [], [], READY_S)[0]:
        said = os.read(ready, 1 << 12)
    if said == b"ready":
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.unlink(path)
    sys.exit(said.decode("utf-8", "replace") or "the server did not begin")


if __name__ == "__main__":
    main(*sys.argv[1:])
