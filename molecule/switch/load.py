"""Asks for answers without a pause until a file is there, and prints what became of them as JSON.

``load.py PORT CLIENTS STOP_FILE``. An answer is whole when its parts have all numbers from 0 on, all of one engine,
and it says why it ended.
"""

from __future__ import annotations

import collections
import http.client
import json
import random
import sys
import threading
import time
from pathlib import Path

PORT, CLIENTS, STOP = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
counts: collections.Counter[str] = collections.Counter()
slowest = [0.0]


def outcome(parts: int, pause: float) -> str:
    """What became of one request: ``whole``, ``cut``, ``lost`` (no answer), or the status of a refusal."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    began = time.monotonic()
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps({"parts": parts, "pause": pause}))
        answer = connection.getresponse()
        slowest[0] = max(slowest[0], time.monotonic() - began)
        if answer.status != http.client.OK:
            answer.read()
            return str(answer.status)
        return "whole" if is_whole(answer, parts) else "cut"
    except http.client.IncompleteRead:
        return "cut"
    except OSError:
        return "lost"
    except http.client.HTTPException:
        return "lost"
    finally:
        connection.close()


def is_whole(answer: http.client.HTTPResponse, parts: int) -> bool:
    """Whether all parts are there, in their order and of one engine, and the end is told."""
    told = [json.loads(line[6:]) for line in answer.read().splitlines() if line]
    numbers = [part.get("number") for part in told[:-1]]
    engines = {part.get("engine") for part in told[:-1]}
    return numbers == list(range(parts)) and len(engines) == 1 and told[-1].get("finish_reason") == "stop"


def ask() -> None:
    """One client."""
    while not STOP.exists():
        became = outcome(random.randint(1, 30), 0.02)  # noqa: S311
        counts[became] += 1
        if became != "whole":
            time.sleep(0.1)


threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
json.dump({**counts, "slowest": round(slowest[0], 1)}, sys.stdout)
