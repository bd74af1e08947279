"""Starts the module server in a container, unless one is there already; prints the reason when it cannot.

Carried to the container and run there: standard input has the server's program and the library that it shall load.
"""

from __future__ import annotations

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


def main(path: str, python: str, idle_s: str) -> None:
    """Start a server that listens at ``path`` and is run by ``python``."""
    program, digests, library = read_part(), read_part(), read_part()
    folder = private_folder(os.path.dirname(path))
    fcntl.flock(folder, fcntl.LOCK_EX)
    if is_served(path):
        return
    if os.path.lexists(path):
        os.unlink(path)  # of a server that was killed
    configuration = {"path": path, "idle_s": float(idle_s), "digests": json.loads(digests)}
    listener = socket(AF_UNIX, SOCK_SEQPACKET)
    os.umask(MINE_ALONE)
    listener.bind(path)
    listener.listen(64)
    ready, ready_end = os.pipe()
    files = {
        0: memory_file(program),
        CONFIGURATION: memory_file(json.dumps(configuration).encode()),
        LISTENER: listener.fileno(),
        READY: ready_end,
        LIBRARY: memory_file(library),
    }
    child = os.fork()
    if child == 0:
        become_server(python, files)
    os.close(ready_end)
    for number in (0, CONFIGURATION, LIBRARY):
        os.close(files[number])
    wait_until_ready(ready, child, path)


def read_part() -> bytes:
    """The next part of standard input: its length, then its bytes."""
    size = int(sys.stdin.buffer.read(LENGTH_DIGITS))
    return sys.stdin.buffer.read(size)


def private_folder(path: str) -> int:
    """Open the folder, which nobody but this user may enter; make it if it is missing."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
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
    """Leave this session and all its files, and become the server: with the environment that this process began with."""
    with open("/proc/self/environ", "rb") as stream:
        entries = [entry.partition(b"=") for entry in stream.read().split(b"\0") if entry]
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
    os.execve(python, [python], {name: value for name, _, value in entries})


def wait_until_ready(ready: int, child: int, path: str) -> None:
    """Return when the server has loaded its library; else end with the reason, and leave nothing."""
    said = b""
    if select.select([ready], [], [], READY_S)[0]:
        said = os.read(ready, 1 << 12)
    if said == b"ready":
        return
    try:
        os.kill(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.unlink(path)
    sys.exit(said.decode("utf-8", "replace") or "the server did not begin")


if __name__ == "__main__":
    main(*sys.argv[1:])
