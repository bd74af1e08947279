"""Asks every module server of a container to end, as soon as what it runs has ended. Carried there and run there."""

from __future__ import annotations

import os
import sys
from _socket import AF_UNIX, SO_PEERCRED, SOCK_SEQPACKET, SOL_SOCKET, socket


def main(root: str) -> None:
    """Ask each; one that is gone already is what we want."""
    try:
        names = os.listdir(root)
    except FileNotFoundError:
        return
    for name in names:
        ask(os.path.join(root, name))


def ask(path: str) -> None:
    """Ask the one that listens there, and return when it has heard it; remove the name of one that was killed."""
    server = socket(AF_UNIX, SOCK_SEQPACKET)
    try:
        server.connect(path)
        user = server.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)[4:8]
        if int.from_bytes(user, sys.byteorder) == os.getuid():
            server.send(b"stop\n")
            server.recv(1)
    except ConnectionRefusedError:
        os.unlink(path)
    except OSError:
        return  # it has just ended by itself
    server.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
