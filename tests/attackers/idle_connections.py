"""Opens connections and says nothing, and prints how many were kept open, as JSON by source address.

``idle_connections.py PORT COUNT SECONDS ADDRESS…``: as many connections to 127.0.0.1, shared out over the source
addresses, each begun anew when it is closed, until the seconds are over. The most that were open at once count.
"""

from __future__ import annotations

import collections
import json
import select
import socket
import sys
import time

PORT, COUNT, SECONDS = (int(word) for word in sys.argv[1:4])
ADDRESSES = sys.argv[4:]
MOST = 6000
MOST_AT_ONCE = 500
ROUND_S = 0.2


def opened(source: str) -> socket.socket | None:
    """Return a connection from that address; None where it is refused."""
    connection = socket.socket()
    connection.settimeout(1)
    try:
        connection.bind((source, 0))
        connection.connect(("127.0.0.1", PORT))
    except OSError:
        connection.close()
        return None
    return connection


def main() -> None:
    """Keep as many open as there may be."""
    kept: dict[socket.socket, str] = {}
    most: collections.Counter[str] = collections.Counter()
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        for number in range(len(kept), min(COUNT, MOST, len(kept) + MOST_AT_ONCE)):
            connection = opened(ADDRESSES[number % len(ADDRESSES)])
            if connection is not None:
                kept[connection] = ADDRESSES[number % len(ADDRESSES)]
        time.sleep(ROUND_S)  # the pace of the attack: without it, it would measure its own processor time
        poller = select.poll()
        by_number = {connection.fileno(): connection for connection in kept}
        for number in by_number:
            poller.register(number, select.POLLIN)
        for number, _ in poller.poll(0):  # nobody answers who says nothing: it was closed
            by_number[number].close()
            del kept[by_number[number]]
        for address, count in collections.Counter(kept.values()).items():
            most[address] = max(most[address], count)
    json.dump(most, sys.stdout)


if __name__ == "__main__":
    main()
