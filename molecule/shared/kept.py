"""Asks for a page by connections that it keeps, as a gateway does, and prints as JSON what became of its requests.

``kept.py PORT CONNECTIONS STOP_FILE PATH [--site NAME --ca FILE]`` goes on until STOP_FILE is there. Each connection is
kept until an answer says that it ends; a site is asked by TLS. What is not ``answered`` is ``lost``: the connection
ended without a word where an answer was to come. Nothing is asked twice, as who asks for an answer of a model would not
either.
"""

from __future__ import annotations

import argparse
import collections
import http.client
import json
import random
import socket
import ssl
import sys
import threading
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("port", type=int)
parser.add_argument("connections", type=int)
parser.add_argument("stop", type=Path)
parser.add_argument("path")
parser.add_argument("--site")
parser.add_argument("--ca", type=Path)
TOLD = parser.parse_args()
CONTEXT = ssl.create_default_context(cafile=str(TOLD.ca)) if TOLD.site else None
ANSWER_S = 20
LONGEST_REST_S = 0.01
"""So long a connection rests at most between two requests: one that is idle at the wrong moment is lost."""
counts: collections.Counter[str] = collections.Counter(answered=0, lost=0)


class Connection(http.client.HTTPConnection):
    """One to this machine; it names the site where there is one, and is made anew after an answer that has ended it."""

    def connect(self) -> None:
        """Connect, by TLS where a site is named."""
        plain = socket.create_connection(("127.0.0.1", TOLD.port), ANSWER_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # head and body of a request are two packets
        self.sock = CONTEXT.wrap_socket(plain, server_hostname=TOLD.site) if CONTEXT else plain


def outcome(connection: Connection) -> str:
    """What became of one request: ``answered``, ``lost``, or the status of another answer than 200."""
    try:
        connection.request("GET", TOLD.path)
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        connection.close()
        return "lost"
    return "answered" if answer.status == http.client.OK else str(answer.status)


def ask() -> None:
    """Keep one connection busy."""
    connection = Connection(TOLD.site or "127.0.0.1", TOLD.port)
    while not TOLD.stop.exists():
        counts[outcome(connection)] += 1
        time.sleep(random.random() * LONGEST_REST_S)  # noqa: S311
    connection.close()


threads = [threading.Thread(target=ask, daemon=True) for _ in range(TOLD.connections)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(60)
json.dump(counts, sys.stdout)
