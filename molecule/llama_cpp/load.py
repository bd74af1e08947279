"""Asks a llama-server for answers without a pause until a file is there, and prints what became of them as JSON.

``load.py PORT CLIENTS KEY_FILE STOP_FILE``. An answer is whole when it says that it ended because of its length, and
has as many tokens as were asked for; every second one is a stream.
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

PORT, CLIENTS, KEY, STOP = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
counts: collections.Counter[str] = collections.Counter()
slowest = [0.0]


def outcome(tokens: int, *, stream: bool) -> str:
    """What became of one request: ``whole``, ``cut``, ``lost`` (no answer), or the status of a refusal."""
    asked = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": tokens, "ignore_eos": True}
    if stream:
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY.read_text(encoding='utf-8').strip()}"}
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=120)
    began = time.monotonic()
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(asked), headers)
        answer = connection.getresponse()
        slowest[0] = max(slowest[0], time.monotonic() - began)
        body = answer.read()
        if answer.status != http.client.OK:
            return str(answer.status)
        return "whole" if ending_of(body, stream=stream) == ("length", tokens) else "cut"
    except http.client.IncompleteRead:
        return "cut"
    except (OSError, http.client.HTTPException):
        return "lost"
    finally:
        connection.close()


def ending_of(body: bytes, *, stream: bool) -> tuple[str | None, int]:
    """Why the answer ended, as it says itself, and how many tokens it says it has."""
    if not stream:
        whole = json.loads(body)
        return whole["choices"][0]["finish_reason"], whole["usage"]["completion_tokens"]
    parts = [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: {")]
    reasons = [choice["finish_reason"] for part in parts for choice in part["choices"] if choice["finish_reason"]]
    tokens = [part["usage"]["completion_tokens"] for part in parts if part.get("usage")]
    return (reasons or [None])[-1], (tokens or [0])[-1]


def ask() -> None:
    """One client."""
    while not STOP.exists():
        became = outcome(random.randint(1, 300), stream=random.random() < 0.5)  # noqa: S311
        counts[became] += 1
        if became != "whole":
            time.sleep(0.1)


threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
json.dump({**counts, "slowest": round(slowest[0], 1)}, sys.stdout)
