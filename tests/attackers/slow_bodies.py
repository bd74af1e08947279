"""Begins requests whose bodies take long, and prints how many got which status, as JSON.

``slow_bodies.py PORT COUNT SECONDS LENGTH ADDRESSES [HEADER]``: as many connections to 127.0.0.1, shared out over the
source addresses (a comma between two), each send a head with that length and 140,000 blanks, more than a proxy waits
for, and then a byte a second, until the seconds are over. One that is closed is begun anew. A connection that got no
answer counts as ``none``.
"""

from __future__ import annotations

import collections
import json
import socket
import sys
import threading
import time

PORT, COUNT, SECONDS, LENGTH = (int(word) for word in sys.argv[1:5])
ADDRESSES = sys.argv[5].split(",")
HEAD = "\r\n".join(["POST /v1/chat/completions HTTP/1.1", "Host: engine", f"Content-Length: {LENGTH}", *sys.argv[6:]])
FIRST = 140_000
MOST = 500
PAUSE_S = 0.5
counts: collections.Counter[str] = collections.Counter()


def attack(until: float, source: str) -> None:
    """Send bodies, one after the other, and count the statuses of their answers."""
    while time.monotonic() < until:
        send(until, source)
        time.sleep(PAUSE_S)  # the pace of the attack: without it, it would measure its own processor time


def send(until: float, source: str) -> None:
    """Send one body, and count the status of its answer."""
    answer = b""
    try:
        with socket.create_connection(("127.0.0.1", PORT), 5, (source, 0)) as connection:
            connection.sendall(f"{HEAD}\r\n\r\n".encode() + b" " * FIRST)
            connection.settimeout(1)
            while time.monotonic() < until:
                connection.sendall(b" ")
                try:
                    part = connection.recv(65536)
                except TimeoutError:
                    continue
                answer += part
                if not part:
                    break
    except OSError:
        pass  # closed, or refused
    counts[answer.split(b" ")[1].decode() if answer else "none"] += 1


if __name__ == "__main__":
    sources = [ADDRESSES[number % len(ADDRESSES)] for number in range(min(COUNT, MOST))]
    threads = [threading.Thread(target=attack, args=(time.monotonic() + SECONDS, source)) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS + 30)
    json.dump(counts, sys.stdout)
