"""Asks for answers without a pause until a file is there, and prints what became of them as JSON.

``load.py PORT CLIENTS STOP_FILE KIND [KEY_FILE [MODEL]]``. Of a ``numbered`` answer, a stand-in's, all parts are there
from 0 on, all of one engine, and it says why it ended. One of a ``model``, every second one a stream, says that it
ended because of its length, and has as many tokens as were asked for.
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
from typing import Any

PORT, CLIENTS, STOP, KIND = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
KEY = Path(sys.argv[5]) if len(sys.argv) > 5 else None
NAME = {"model": sys.argv[6]} if len(sys.argv) > 6 else {}
"""A gateway has to be told whom to ask."""
counts: collections.Counter[str] = collections.Counter()
slowest = [0.0]


def numbered() -> tuple[dict[str, Any], int]:
    """A question for a stand-in, and how many parts it asks for."""
    parts = random.randint(1, 30)  # noqa: S311
    return {"parts": parts, "pause": 0.02}, parts


def has_all_numbers(body: bytes, parts: int) -> bool:
    """Whether all parts are there, in their order and of one engine, and the end is told."""
    told = [json.loads(line[6:]) for line in body.splitlines() if line]
    numbers = [part.get("number") for part in told[:-1]]
    engines = {part.get("engine") for part in told[:-1]}
    return numbers == list(range(parts)) and len(engines) == 1 and told[-1].get("finish_reason") == "stop"


def model() -> tuple[dict[str, Any], int]:
    """A question for a model, and how many tokens it asks for."""
    tokens = random.randint(1, 300)  # noqa: S311
    asked = {**NAME, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": tokens, "ignore_eos": True}
    if random.random() < 0.5:  # noqa: S311
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
    return asked, tokens


def has_all_tokens(body: bytes, tokens: int) -> bool:
    """Whether it ended because of its length, and has so many tokens, as it says itself."""
    lines = [line[6:] for line in body.splitlines() if line.startswith(b"data: {")]
    parts = [json.loads(line) for line in lines] or [json.loads(body)]
    reasons = [choice["finish_reason"] for part in parts for choice in part["choices"] if choice.get("finish_reason")]
    said = [part["usage"]["completion_tokens"] for part in parts if part.get("usage")]
    return (reasons[-1:], said[-1:]) == (["length"], [tokens])


QUESTION, IS_WHOLE = {"numbered": (numbered, has_all_numbers), "model": (model, has_all_tokens)}[KIND]


def outcome() -> str:
    """What became of one request: ``whole``, ``cut``, ``lost`` (no answer), or the status of a refusal."""
    asked, wanted = QUESTION()
    headers = {"Content-Type": "application/json"}
    if KEY:
        headers["Authorization"] = f"Bearer {KEY.read_text(encoding='utf-8').strip()}"
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=120)
    began = time.monotonic()
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(asked), headers)
        answer = connection.getresponse()
        slowest[0] = max(slowest[0], time.monotonic() - began)
        body = answer.read()
        if answer.status != http.client.OK:
            return str(answer.status)
        return "whole" if IS_WHOLE(body, wanted) else "cut"
    except http.client.IncompleteRead:
        return "cut"
    except (OSError, http.client.HTTPException):
        return "lost"
    finally:
        connection.close()


def ask() -> None:
    """One client."""
    while not STOP.exists():
        became = outcome()
        counts[became] += 1
        if became != "whole":
            time.sleep(0.1)


threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
json.dump({**counts, "slowest": round(slowest[0], 1)}, sys.stdout)
