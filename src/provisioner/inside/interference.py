"""Tells what disturbs a measurement from elsewhere: asked in the service's container before and after it.

Reads JSON: ``do`` (what is asked, as of every program there) and ``socket``, by which the switch before the service is
asked; empty where there is none. The answer: ``at_s``, ``waited_us`` and ``throttled_us`` (``cpu_waits``), and
``answered``: how many requests the switch has led to the service since it was started, -1 where nobody counts them.
"""

from __future__ import annotations

import csv
import json
import socket
import sys
from typing import Any

from provisioner.inside.cpu_waits import waits

BACKEND = "answers"
"""The part of role ``switch``'s configuration that leads requests to a service."""
ASKED = "show stat -1 2 -1\n"
"""Of HAProxy: its statistics of all backends."""
ANSWER_S = 10
LARGEST_ANSWER = 2**20
NOBODY_COUNTS = -1


def answered(path: str) -> int:
    """How many requests a switch has led to its service; ``NOBODY_COUNTS`` where there is none, or it does not say."""
    if not path:
        return NOBODY_COUNTS
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ANSWER_S)
            connection.connect(path)
            connection.sendall(ASKED.encode("ascii"))
            said = b""
            while len(said) <= LARGEST_ANSWER and (part := connection.recv(65536)):
                said += part
    except OSError:
        return NOBODY_COUNTS
    for row in csv.DictReader(said.decode("utf-8", errors="replace").lstrip("# ").splitlines()):
        if (row["pxname"], row["svname"]) == (BACKEND, "BACKEND"):
            return int(row["stot"])
    return NOBODY_COUNTS


def main(request: bytes) -> None:
    """Answer one request, given as it is sent."""
    asked: dict[str, Any] = json.loads(request)
    now = waits()
    told = {"at_s": now.at_s, "waited_us": now.waited_us, "throttled_us": now.throttled_us}
    json.dump({**told, "answered": answered(asked["socket"])}, sys.stdout)


if __name__ == "__main__":
    main(sys.stdin.buffer.read())
