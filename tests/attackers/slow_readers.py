"""Asks for pages and reads a byte a second of each answer, and prints how many bytes came, as JSON.

``slow_readers.py PORT COUNT SECONDS PATH ADDRESSES [HEADER]``: as many connections to 127.0.0.1, shared out over the
source addresses (a comma between two), have a receive buffer as small as the kernel allows, ask for the path and read
until the seconds are over. One that is closed is begun anew.
"""

from __future__ import annotations

import collections
import json
import socket
import sys
import threading
import time

PORT, COUNT, SECONDS = (int(word) for word in sys.argv[1:4])
PATH, ADDRESSES = sys.argv[4], sys.argv[5].split(",")
HEAD = "\r\n".join([f"GET {PATH} HTTP/1.1", "Host: pages", *sys.argv[6:]])
MOST = 500
PAUSE_S = 1.0
read: collections.Counter[str] = collections.Counter()


def attack(until: float, source: str) -> None:
    """Read answers, one after the other."""
    while time.monotonic() < until:
        try:
            with socket.socket() as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
                connection.settimeout(5)
                connection.bind((source, 0))
                connection.connect(("127.0.0.1", PORT))
                connection.sendall(f"{HEAD}\r\n\r\n".encode())
                while time.monotonic() < until and connection.recv(1):
                    read["bytes"] += 1
                    time.sleep(PAUSE_S)  # the pace of the attack
        except OSError:
            time.sleep(PAUSE_S)  # refused, or silent


if __name__ == "__main__":
    sources = [ADDRESSES[number % len(ADDRESSES)] for number in range(min(COUNT, MOST))]
    threads = [threading.Thread(target=attack, args=(time.monotonic() + SECONDS, source)) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS + 30)
    json.dump(read, sys.stdout)
