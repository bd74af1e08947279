"""Asks a pipeline a question and reads its answer to the end, as a client would.

Reads JSON: ``port``, ``key``, ``model``, ``question`` and ``timeout_s`` for all of it. Writes JSON: ``status``,
``ended`` (whether the stream came to its end), ``text`` and ``problem``, which is empty where all is well.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

MOST_BYTES, MOST_TEXT = 4 * 2**20, 500
OK = 200
EVENT, LAST = b"data:", b"[DONE]"


def main() -> None:
    """Ask and tell."""
    asked = json.load(sys.stdin)
    sys.stdout.write(json.dumps(answer(asked)))


def answer(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What came."""
    told: dict[str, Any] = {"status": 0, "ended": False, "text": "", "problem": ""}
    body = {"model": asked["model"], "stream": True, "messages": [{"role": "user", "content": asked["question"]}]}
    headers = {"Authorization": f"Bearer {asked['key']}", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection("127.0.0.1", asked["port"], timeout=asked["timeout_s"])
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body).encode(), headers)
        response = connection.getresponse()
        told["status"] = response.status
        if response.status == OK:
            read(response, time.monotonic() + asked["timeout_s"], told)
        else:
            told["problem"] = response.read(MOST_TEXT).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        told["problem"] = repr(error)
    finally:
        connection.close()
    if told["status"] == OK and not told["problem"] and not (told["ended"] and told["text"]):
        told["problem"] = "the answer has no words" if told["ended"] else "the answer was cut: it has no end"
    return told


def read(response: http.client.HTTPResponse, end: float, told: dict[str, Any]) -> None:
    """The stream to its end, as far as the limits let it come."""
    size = 0
    while line := response.readline(MOST_BYTES):
        size += len(line)
        if size > MOST_BYTES or time.monotonic() > end:
            told["problem"] = f"the answer goes on beyond {MOST_BYTES} bytes, or beyond its time"
            return
        if not line.startswith(EVENT):
            continue
        event = line[len(EVENT) :].strip()
        if event == LAST:
            told["ended"] = True
        else:
            told["text"] = (told["text"] + words(event))[:MOST_TEXT]


def words(event: bytes) -> str:
    """The words of one event; none where it has no such form."""
    try:
        return str(json.loads(event)["choices"][0]["delta"].get("content") or "")
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""


if __name__ == "__main__":
    main()
