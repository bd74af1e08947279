"""Asks the door as a browser does: ``client.py NAME HEX``; without TLS where NAME is ``plain``.

Sends what HEX stands for, and prints as JSON a list of what came with the time at which it came. Where the words
``socket FILE`` follow, HEX is the head of a websocket: it sends a word, waits until FILE is there, and sends one more.
"""

from __future__ import annotations

import json
import socket
import ssl
import sys
import time
from contextlib import suppress
from pathlib import Path

PATIENCE_S, REST_S = 30, 8
MASK = b"\x01\x02\x03\x04"


def frame(text: bytes) -> bytes:
    """A masked frame of a websocket."""
    return bytes([0x81, 0x80 | len(text)]) + MASK + bytes(byte ^ MASK[at % 4] for at, byte in enumerate(text))


def connected(name: str) -> socket.socket:
    """A connection to the door."""
    raw = socket.create_connection(("127.0.0.1", 80 if name == "plain" else 443), PATIENCE_S)
    if name == "plain":
        return raw
    return ssl.create_default_context(cafile="/run/root.pem").wrap_socket(raw, server_hostname=name)


def main() -> None:
    """Ask and tell."""
    name, request = sys.argv[1], bytes.fromhex(sys.argv[2])
    connection = connected(name)
    connection.sendall(request)
    parts = []
    if sys.argv[3:]:
        parts.append(connection.recv(65536).decode())
        connection.sendall(frame(b"before"))
        parts.append(connection.recv(65536)[2:].decode())
        deadline = time.monotonic() + PATIENCE_S
        while not Path(sys.argv[4]).exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        connection.sendall(frame(b"after"))
        parts.append(connection.recv(65536)[2:].decode())
    else:
        with suppress(TimeoutError):  # HAProxy 3.0 closes late where the request was not read to its end
            while part := connection.recv(65536):
                parts.append([time.time(), part.decode()])
                connection.settimeout(REST_S)
    sys.stdout.write(json.dumps(parts))


main()
