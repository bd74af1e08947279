"""Asks for answers at the very moments at which an idle engine is put to sleep, and prints what became of them as JSON.

``hammer.py PORT MARKER ROUNDS [UNIT]``: in each round it waits until the file ``MARKER`` is there, and then asks three
times, each a random part of a second later; in such a moment it also kills ``UNIT``, which starts again by itself.
"""

from __future__ import annotations

import collections
import http.client
import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

PORT, MARKER, ROUNDS = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
KILLED = sys.argv[4:]
ASKED_AT_ONCE = 3
LATEST_S = 0.4
"""Longer than an engine takes to end, so that requests meet each step of that."""
LONGEST_ROUND_S = 20.0
counts: collections.Counter[str] = collections.Counter()
slowest = [0.0]


def became() -> str:
    """What became of one request: ``whole``, ``cut``, ``lost``, or the status of a refusal."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    began = time.monotonic()
    try:
        body = json.dumps({"parts": 3, "pause": 0.01})
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        slowest[0] = max(slowest[0], time.monotonic() - began)
    except http.client.IncompleteRead:
        return "cut"
    except (OSError, http.client.HTTPException):
        return "lost"
    finally:
        connection.close()
    if answer.status != http.client.OK:
        return str(answer.status)
    return "whole" if b'"finish_reason": "stop"' in text else "cut"


def wait_a_little() -> None:
    """Until some moment of the engine's end."""
    time.sleep(random.random() * LATEST_S)  # noqa: S311


def ask() -> None:
    """One request."""
    wait_a_little()
    counts[became()] += 1


def kill() -> None:
    """End the unit by force, and have systemd start it again however often that was."""
    wait_a_little()
    for unit in KILLED:
        subprocess.run(["/usr/bin/systemctl", "kill", "--signal=KILL", unit], check=True, timeout=10)
        subprocess.run(["/usr/bin/systemctl", "reset-failed", unit], check=True, timeout=10)


for _ in range(ROUNDS):
    deadline = time.monotonic() + LONGEST_ROUND_S
    while not MARKER.exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    threads = [threading.Thread(target=doing, daemon=True) for doing in [kill, *[ask] * ASKED_AT_ONCE]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
json.dump({**counts, "slowest": round(slowest[0], 2)}, sys.stdout)
