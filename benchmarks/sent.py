"""``python -m benchmarks.sent VERB …``: runs ``provision VERB …`` and prints how many bytes it sent to any socket."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any
from unittest.mock import patch

os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # as the command itself does

total = 0
plain_send, plain_sendall = socket.socket.send, socket.socket.sendall


def send(self: socket.socket, data: Any, *flags: int) -> int:
    """As ``socket.send``, counted."""
    global total  # noqa: PLW0603  # this file is a program, and this is all it knows
    sent = plain_send(self, data, *flags)
    total += sent
    return sent


def sendall(self: socket.socket, data: Any, *flags: int) -> None:
    """As ``socket.sendall``, counted."""
    global total  # noqa: PLW0603  # ditto
    plain_sendall(self, data, *flags)
    total += memoryview(data).nbytes


with patch.object(socket.socket, "send", send), patch.object(socket.socket, "sendall", sendall):
    from provisioner.cli.app import run

    code = run(sys.argv[1:])
sys.stdout.write(f"{total}\n")
sys.exit(code)
