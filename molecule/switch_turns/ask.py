"""Asks engines that share a card, several at once, and prints what became of each request as JSON.

``ask.py COUNT PAUSE ADDRESS…``: so many requests, one after the other begun after so many seconds, to the addresses in
turn. Each line of the answer has the address, the seconds at which it was begun and answered, and ``whole``, ``cut``,
``lost`` or the status of a refusal.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from typing import Any

COUNT, PAUSE, ADDRESSES = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
PARTS = 20
QUESTION = json.dumps({"parts": PARTS, "pause": 0.02})
seen: list[dict[str, Any]] = []


def outcome(address: str) -> str:
    """What became of one request."""
    connection = http.client.HTTPConnection(address, timeout=240)
    try:
        connection.request("POST", "/v1/chat/completions", QUESTION, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        body = answer.read()
    except http.client.IncompleteRead:
        return "cut"
    except (OSError, http.client.HTTPException):
        return "lost"
    finally:
        connection.close()
    if answer.status != http.client.OK:
        return str(answer.status)
    told = [json.loads(line[6:]) for line in body.splitlines() if line]
    is_whole = [part.get("number") for part in told] == [*range(PARTS), None]
    return "whole" if is_whole and told[-1].get("finish_reason") == "stop" else "cut"


def ask(address: str) -> None:
    """One request."""
    began = time.time()
    said = outcome(address)
    seen.append({"address": address, "began": began, "ended": time.time(), "outcome": said})


threads = []
for number in range(COUNT):
    threads.append(threading.Thread(target=ask, args=(ADDRESSES[number % len(ADDRESSES)],), daemon=True))
    threads[-1].start()
    time.sleep(PAUSE)
for thread in threads:
    thread.join(600)
sys.stdout.write(json.dumps(seen))
