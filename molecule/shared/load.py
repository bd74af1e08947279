"""Asks for answers without a pause until a file is there, and prints what became of them as JSON.

``load.py PORT CLIENTS STOP_FILE KIND [KEY_FILE [MODELS]]``, with several models separated by commas. Of a ``numbered``
answer, a stand-in's, all parts are there from 0 on, all of one engine, and it says why it ended. One of a ``model``,
every second one a stream, says that it ended because of its length, and has as many tokens as were asked for. With
``--slowly 0.8`` so many of them are streams that are read slowly, for up to 15 s, and none of the others is a stream.
``--at ADDRESS --site NAME --ca FILE`` asks a site by TLS, whose name has to stand in its certificate. With
``--keep`` each client asks again by the connection whose last answer was whole, unless it sees that this has ended.

What is not ``whole`` is ``cut`` (it ends too early and says so by its end), ``feigned`` (it ends too early, and has an
end as if it were whole), ``lost`` (there is no answer), or the status of a refusal. One with 503 has to say when to
come again, else it is ``503 for ever``. How the first of each kind ended stands on standard error.
"""

from __future__ import annotations

import argparse
import collections
import http.client
import json
import random
import select
import socket
import ssl
import sys
import threading
import time
from pathlib import Path
from typing import Any

parser = argparse.ArgumentParser()
parser.add_argument("port", type=int)
parser.add_argument("clients", type=int)
parser.add_argument("stop", type=Path)
parser.add_argument("kind", choices=("numbered", "model"))
parser.add_argument("key", type=Path, nargs="?")
parser.add_argument("models", nargs="?", default="")
parser.add_argument("--at", default="127.0.0.1")
parser.add_argument("--site")
parser.add_argument("--ca", type=Path)
parser.add_argument("--slowly", type=float, default=0.0)
parser.add_argument("--keep", action="store_true")
TOLD = parser.parse_args()
CONTEXT = ssl.create_default_context(cafile=str(TOLD.ca)) if TOLD.site else None
ANSWER_S = 180
SLOWLY_S = 15.0
"""So long the slowest readers take for a stream."""
SHOWN_BYTES = 300
counts: collections.Counter[str] = collections.Counter()
slowest = [0.0]


def numbered() -> tuple[dict[str, Any], int]:
    """A question for a stand-in, and how many parts it asks for."""
    parts = random.randint(1, 30)  # noqa: S311
    return {"parts": parts, "pause": 0.02}, parts


def has_all_numbers(body: bytes, parts: int) -> bool:
    """Whether all parts are there, in their order and of one engine, and the end is told."""
    told = parts_of(body)
    numbers = [part.get("number") for part in told[:-1]]
    engines = {part.get("engine") for part in told[:-1]}
    return numbers == list(range(parts)) and len(engines) == 1 and told[-1].get("finish_reason") == "stop"


def model() -> tuple[dict[str, Any], int]:
    """A question for a model, and how many tokens it asks for."""
    is_stream = random.random() < (TOLD.slowly or 0.5)  # noqa: S311
    tokens = random.randint(1, 300)  # noqa: S311
    name = random.choice(TOLD.models.split(","))  # noqa: S311
    question = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": tokens, "ignore_eos": True}
    asked = question | ({"model": name} if name else {})  # a gateway has to be told whom to ask
    if is_stream:
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
    return asked, tokens


def has_all_tokens(body: bytes, tokens: int) -> bool:
    """Whether it ended because of its length, and has so many tokens, as it says itself."""
    said = [part["usage"]["completion_tokens"] for part in parts_of(body) if part.get("usage")]
    return (reasons_of(body)[-1:], said[-1:]) == (["length"], [tokens])


def parts_of(body: bytes) -> list[dict[str, Any]]:
    """The parts of a stream, or the one answer; of one that breaks off what can be read."""
    texts = [line[6:] for line in body.splitlines() if line.startswith(b"data: {")] or [body]
    parts = []
    for text in texts:
        try:
            parts.append(json.loads(text))
        except ValueError:
            break
    return [part for part in parts if isinstance(part, dict)]


def reasons_of(body: bytes) -> list[str]:
    """All that it says of why it ended."""
    places = [place for part in parts_of(body) for place in (part, *part.get("choices", []))]
    return [place["finish_reason"] for place in places if place.get("finish_reason")]


def has_an_end(body: bytes) -> bool:
    """Whether who reads it would take it for a whole answer."""
    return bool(reasons_of(body)) or b"data: [DONE]" in body


QUESTION, IS_WHOLE = {"numbered": (numbered, has_all_numbers), "model": (model, has_all_tokens)}[TOLD.kind]


class Connection(http.client.HTTPConnection):
    """One to who is asked; by TLS where a site is named."""

    def connect(self) -> None:
        """Connect; it is done anew for a request when the last answer has ended the connection."""
        plain = socket.create_connection((TOLD.at, TOLD.port), ANSWER_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # head and body of a request are two packets
        self.sock = CONTEXT.wrap_socket(plain, server_hostname=TOLD.site) if CONTEXT else plain


def headers() -> dict[str, str]:
    """The heads of a request; a key is read anew for each."""
    told = {"Content-Type": "application/json"}
    if TOLD.key:
        told["Authorization"] = f"Bearer {TOLD.key.read_text(encoding='utf-8').strip()}"
    return told


def read(answer: http.client.HTTPResponse, pause_s: float) -> tuple[bytes, bool]:
    """What is answered, and whether it came to its end; a slow reader rests after each line."""
    body = b""
    try:
        for line in answer:
            body += line
            time.sleep(pause_s)
    except (OSError, http.client.HTTPException):
        return body, False
    # Read by lines, an answer of a known length is not taken for one that was read to its end.
    answer.close()
    return body, True


def judged(answer: http.client.HTTPResponse, pause_s: float, wanted: int) -> tuple[str, bytes]:
    """What became of a request that is being answered, and what was read of the answer."""
    if answer.status != http.client.OK:
        body, _ = read(answer, 0)
        for_ever = answer.status == http.client.SERVICE_UNAVAILABLE and not answer.getheader("Retry-After")
        return f"{answer.status}{' for ever' if for_ever else ''}", body
    body, has_come = read(answer, pause_s)
    if has_come and IS_WHOLE(body, wanted):
        return "whole", body
    return ("feigned" if has_an_end(body) else "cut"), body


def outcome(asking: Connection) -> tuple[str, bytes]:
    """What became of one request, and what was read of its answer."""
    asked, wanted = QUESTION()
    is_slow = TOLD.slowly and asked.get("stream")
    pause_s = random.random() * SLOWLY_S / (2 * wanted) if is_slow else 0.0  # noqa: S311
    began = time.monotonic()
    try:
        asking.request("POST", "/v1/chat/completions", json.dumps(asked), headers())
        answer = asking.getresponse()
    except (OSError, http.client.HTTPException) as error:
        return "lost", repr(error).encode()
    slowest[0] = max(slowest[0], time.monotonic() - began)
    return judged(answer, pause_s, wanted)


def has_ended(asking: Connection) -> bool:
    """Whether the other side has ended a connection that is kept, as clients look before they use one."""
    return asking.sock is not None and bool(select.select([asking.sock], [], [], 0)[0])


def ask() -> None:
    """One client."""
    asking = Connection(TOLD.site or TOLD.at, TOLD.port)
    while not TOLD.stop.exists():
        if has_ended(asking):
            asking.close()
        became, body = outcome(asking)
        if not counts[became] and became != "whole":
            sys.stderr.write(
                f"{time.ctime()} {became}: {len(body)} bytes, {body[:SHOWN_BYTES]!r} … {body[-SHOWN_BYTES:]!r}\n"
            )
        counts[became] += 1
        if not TOLD.keep or became != "whole":
            # An answer that was not read to its end would be taken for that to the next request.
            asking.close()
        if became != "whole":
            time.sleep(0.1)
    asking.close()


threads = [threading.Thread(target=ask, daemon=True) for _ in range(TOLD.clients)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(300)
json.dump({**counts, "slowest": round(slowest[0], 1)}, sys.stdout)
