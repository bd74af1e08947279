"""Asks the module server to run the payload on standard input, and ends as the payload ended.

Carried to the container and run with each task: so it imports next to nothing. Whatever keeps the server from running
the payload, this program then becomes the Python that runs it the usual way; nothing of it has been read until then.
"""

from __future__ import annotations

import os
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SO_PEERCRED, SOCK_SEQPACKET, SOL_SOCKET, socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

LARGEST_ANSWER = 1 << 12
LENGTH_DIGITS = 8
MINE_ALONE = 0o077


class NotServedError(Exception):
    """Why the server does not run the payload."""


def main(path: str, mark: str, python: str) -> NoReturn:
    """Have the payload run; ``mark`` begins the line on standard error that tells the connection plugin by whom."""
    request = read_exactly(int(read_exactly(LENGTH_DIGITS)))
    try:
        server = connected(path)
        ask(server, request)
    except (NotServedError, OSError) as error:
        reason = str(error) if isinstance(error, NotServedError) else "no server"
        os.write(2, f"{mark} {reason}\n".encode())
        os.execv(python, [python])  # noqa: S606  # it reads the payload, which comes next on standard input
    os.write(2, f"{mark} served\n".encode())
    end_like(run_by(server))


def read_exactly(size: int) -> bytes:
    """Read so much of standard input, and nothing beyond it."""
    parts = []
    while size:
        part = os.read(0, size)
        if not part:
            sys.exit("standard input ended early")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def connected(path: str) -> socket:
    """Connect to the server; only to one of this very user, in a folder that is this user's alone."""
    about = os.lstat(os.path.dirname(path))
    if about.st_uid != os.getuid() or about.st_mode & MINE_ALONE:
        raise NotServedError("the server's folder is not root's alone")
    server = socket(AF_UNIX, SOCK_SEQPACKET)
    server.connect(path)
    user = server.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)[4:8]
    if int.from_bytes(user, sys.byteorder) != os.getuid():
        raise NotServedError("the server is another user's")
    return server


def ask(server: socket, request: bytes) -> None:
    """Ask whether the server runs a payload with this library."""
    server.send(request)
    answer = server.recv(LARGEST_ANSWER)
    if answer != b"ok":
        raise NotServedError(answer.decode("ascii", "replace") or "the server ended")


def run_by(server: socket) -> int:
    """Hand over the standard streams and the working directory, wait for the end, and return the wait status."""
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    descriptors = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2, folder))
    server.sendmsg([b"go"], [(SOL_SOCKET, SCM_RIGHTS, descriptors)])
    answer = server.recv(LARGEST_ANSWER)
    word, _, status = answer.partition(b" ")
    if word != b"ended":
        os.write(2, b"The module server was killed while it ran this module.\n")
        return 9
    return int(status)


def end_like(status: int) -> NoReturn:
    """End with the same exit code, or by the same signal."""
    if os.WIFSIGNALED(status):
        import resource
        import signal

        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # this process is not what failed
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main(*sys.argv[1:])
