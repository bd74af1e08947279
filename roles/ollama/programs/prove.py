"""Asks each model of an Ollama for an answer as a client does, and tells what came and where the model lies.

Reads JSON: ``url`` (the server itself), ``door`` (where clients reach it), ``key``, ``models`` (names), ``within_s``
for each. Answers as JSON, for each model: ``name``, ``kind`` (``chat`` or ``embedding``), ``status`` of its answer,
``ended`` (why it ended), ``tokens``, ``said`` (what it answered, in words), ``size`` and ``on_card``, bytes of it in
memory and of these on a card, 0 where it is not loaded. What could not be asked has an ``error`` in words. Python's own
library is enough.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

LONGEST_ANSWER = 16 * 2**20
BUSY = 503
AGAIN_S = 5.0
LOOKED_AT = "10s"
"""So long a model stays that is loaded to see where it lies."""
LOOK_S = 0.2
GREETING = "Say hello."
LONGEST_WORDS = 2000
"""Characters of an answer that are passed on; whoever shows them takes out secrets, and shows fewer."""
COMPLETES, EMBEDS = "completion", "embedding"

Said = dict[str, Any]

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def asked_of(url: str, path: str, body: Mapping[str, Any] | None, timeout_s: float, key: str = "") -> tuple[int, Any]:
    """The status and the content of an answer; an answer that is no JSON has none."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, headers)  # noqa: S310  # http alone
    try:
        with _DIRECT.open(request, timeout=timeout_s) as answer:
            status, text = int(answer.status), answer.read(LONGEST_ANSWER)
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read(LONGEST_ANSWER)
    try:
        return status, json.loads(text)
    except ValueError:
        return status, {}


def answered(asked: Mapping[str, Any], path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
    """What a client gets; one that is told to come again does, as long as there is time."""
    end = time.monotonic() + asked["within_s"]
    while True:
        status, content = asked_of(asked["door"], path, body, asked["within_s"], asked["key"])
        if status != BUSY or time.monotonic() + AGAIN_S > end:
            return status, content
        time.sleep(AGAIN_S)  # the switch asks those who find no place to come again, and tells nobody when there is one


def proof_of(asked: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What one model answered, and where it lies."""
    status, shown = asked_of(asked["url"], "/api/show", {"model": name}, asked["within_s"])
    can = shown.get("capabilities") or []
    proof = {"name": name, "kind": "embedding" if EMBEDS in can and COMPLETES not in can else "chat"}
    if status != http.client.OK:
        return {**proof, "error": f"it does not know {name}: HTTP {status}, {shown.get('error', 'without a word')}"}
    answer = _embedded if proof["kind"] == "embedding" else _chatted
    said, place = watched(asked, name, lambda: answer(asked, name))
    proof |= said
    if not place:  # with a `keep_alive` of 0s it came and went between two looks
        asked_of(asked["url"], "/api/generate", {"model": name, "keep_alive": LOOKED_AT}, asked["within_s"])
        place = place_of(asked, name)
    return {"size": 0, "on_card": 0, **proof, **place}


def watched(asked: Mapping[str, Any], name: str, answer: Callable[[], Said]) -> tuple[Said, dict[str, int]]:
    """What was answered, and where the model lay meanwhile: it may have gone at once, for one that others ask for."""
    place: dict[str, int] = {}
    with ThreadPoolExecutor(max_workers=1) as beside:
        answering = beside.submit(answer)
        while not wait([answering], timeout=LOOK_S).done:
            place = place_of(asked, name) or place
    return answering.result(), place_of(asked, name) or place


def place_of(asked: Mapping[str, Any], name: str) -> dict[str, int]:
    """How large a model is in memory, and how much of it lies on a card; nothing where it is not loaded."""
    _, running = asked_of(asked["url"], "/api/ps", None, asked["within_s"])
    for one in running.get("models") or ():
        if one.get("name") in (name, f"{name}:latest"):
            return {"size": int(one.get("size", 0)), "on_card": int(one.get("size_vram", 0))}
    return {}


def _chatted(asked: Mapping[str, Any], name: str) -> dict[str, Any]:
    question = {
        "model": name,
        "max_tokens": 8,
        "temperature": 0,
        "messages": [{"role": "user", "content": GREETING}],
    }
    status, content = answered(asked, "/v1/chat/completions", question)
    choice = (content.get("choices") or [{}])[0]
    tokens = (content.get("usage") or {}).get("completion_tokens", 0)
    ended = choice.get("finish_reason") or "nothing"
    message = choice.get("message") or {}
    words = f"{message.get('content') or message.get('reasoning') or ''}"[:LONGEST_WORDS]
    said = f'asked "{GREETING}" it answers with {tokens} tokens, ended by {ended}: {words}'
    return {"status": status, "ended": ended, "tokens": tokens, "said": said}


def _embedded(asked: Mapping[str, Any], name: str) -> dict[str, Any]:
    status, content = answered(asked, "/v1/embeddings", {"model": name, "input": ["hello"]})
    vector = (content.get("data") or [{}])[0].get("embedding") or []
    ended = "stop" if any(vector) else "nothing"
    return {"status": status, "ended": ended, "tokens": len(vector), "said": f"a vector of {len(vector)} numbers"}


def proofs(asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every model, one after the other: each is loaded for it."""
    found = []
    for name in asked["models"]:
        try:
            found.append(proof_of(asked, name))
        except (OSError, http.client.HTTPException) as error:
            found.append({"name": name, "error": f"nobody answers: {error}"})
    return found


if __name__ == "__main__":
    json.dump(proofs(json.load(sys.stdin)), sys.stdout)
