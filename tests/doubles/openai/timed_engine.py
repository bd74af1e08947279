"""A server that answers as OpenAI does, with delays that are known, and the faults of real ones when told so."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any

from tests.http_servers import QuietHandler, served

AROUND = 9
"""Tokens that stand around each message."""


@dataclass
class StandIn:
    """How it answers: seconds to the first token and from there to each next one, and what it does wrong.

    ``per_word``: tokens of one word. ``ceiling``: longer prompts are refused. ``keeps``: of longer ones only so many
    tokens are read, and it answers all the same. ``burst``: the answer comes in one piece. ``breaks``: it ends the
    connection in the middle. ``counts``: whether it tells how many tokens there were.
    """

    first_s: float = 0.0
    step_s: float = 0.0
    key: str = ""
    per_word: float = 1.3
    ceiling: int = 10**9
    keeps: int = 10**9
    burst: bool = False
    breaks: bool = False
    counts: bool = True
    says: int = 10**9
    """It writes no more tokens than that."""
    port: int = 0
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str | None] = field(default_factory=set)

    @property
    def url(self) -> str:
        """OpenAI's base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    def tokens_of(self, question: dict[str, Any]) -> int:
        """How many tokens its prompt has, as this one counts."""
        words = sum(len(text_of(one["content"]).split()) for one in question["messages"])
        return min(round(words * self.per_word) + AROUND * len(question["messages"]), self.keeps)


def text_of(content: str | list[dict[str, Any]]) -> str:
    """What a message says, as one text or in parts."""
    return content if isinstance(content, str) else " ".join(part["text"] for part in content)


@contextmanager
def serving(stand_in: StandIn) -> Iterator[StandIn]:
    """It serves on a free port of loopback."""
    handler = type("Handler", (_Handler,), {"of": stand_in})
    with served(_Server(("127.0.0.1", stand_in.port), handler)) as server:
        stand_in.port = server.server_port
        yield stand_in


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Nothing: who asks may leave."""


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    of: StandIn

    def do_POST(self) -> None:
        """One chat."""
        of, key = self.of, self.headers.get("Authorization")
        question = json.loads(self.content())
        of.keys.add(key)
        of.asked.append(question)
        tokens = of.tokens_of(question)
        if of.key and key != f"Bearer {of.key}":
            self._whole(401, {"error": {"message": "no such key"}})
        elif tokens > of.ceiling:
            self._whole(400, {"error": {"message": f"{tokens} tokens are more than {of.ceiling}"}})
        else:
            written = min(question["max_tokens"], of.says)
            usage = {"prompt_tokens": tokens, "completion_tokens": written, "total_tokens": tokens + written}
            told = {"usage": usage} if of.counts else {}
            if question.get("stream"):
                self._stream(written, told)
            else:
                self._whole(200, {"choices": [{"message": {"content": "word"}}], **told})

    def _whole(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.give(status, body)

    def _stream(self, written: int, told: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        of, moment = self.of, time.monotonic() + self.of.first_s
        pieces = [written] if of.burst else [1] * written
        if of.burst:
            moment += of.step_s * (written - 1)
        for words in pieces:
            time.sleep(max(moment - time.monotonic(), 0.0))
            moment += of.step_s
            self._event({"choices": [{"index": 0, "delta": {"content": "word " * words}}]})
            if of.breaks:
                self.close_connection = True
                return
        if told:
            self._event({"choices": [], **told})
        self._piece(b"data: [DONE]\n\n")
        self._piece(b"")

    def _event(self, value: dict[str, Any]) -> None:
        self._piece(b"data: " + json.dumps(value).encode() + b"\n\n")

    def _piece(self, piece: bytes) -> None:
        try:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        except ConnectionError:
            self.close_connection = True  # who asked has left
