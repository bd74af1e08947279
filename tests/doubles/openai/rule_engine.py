"""An engine that answers as OpenAI does, by a rule: a text, or calls of the tools that it is offered."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any

from tests.http_servers import QuietHandler, served

Question = dict[str, Any]
"""What an engine is asked, as it came."""


@dataclass(frozen=True)
class Reply:
    """What the engine says: ``text``, and ``calls``, the tools that it wants, each with its arguments as JSON."""

    text: str = ""
    calls: Sequence[tuple[str, str]] = ()


def asks(*members: tuple[str, str]) -> Reply:
    """The reply that calls tools, each with its input."""
    return Reply(calls=[(name, json.dumps({"input": said})) for name, said in members])


@dataclass
class RuleEngine:
    """An engine and its rule; with ``status`` it refuses everything with ``says``.

    ``counts``: whether it tells how many tokens there were. ``endless``: whether it goes on writing until its client
    leaves. ``hangs``: whether it never answers.
    """

    rule: Callable[[Question], Reply]
    key: str = ""
    status: int = 200
    says: str = ""
    counts: bool = True
    endless: bool = False
    hangs: bool = False
    host: str = "127.0.0.1"
    port: int = 0
    """Whichever is free, unless it is named."""
    asked: list[Question] = field(default_factory=list)
    ended: list[Question] = field(default_factory=list)
    """Those that it is done with."""
    keys: list[str | None] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    """Set when a client left before its answer was whole."""
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """OpenAI's base URL."""
        return f"http://{self.host}:{self.port}/v1"


def last_text(question: Question) -> str:
    """What the last message of a question says."""
    return str(question["messages"][-1]["content"])


def tool_answers(question: Question) -> list[str]:
    """What tools have answered so far."""
    return [str(message["content"]) for message in question["messages"] if message["role"] == "tool"]


@contextmanager
def serving(*engines: RuleEngine) -> Iterator[None]:
    """The engines serve, on free ports of loopback where they name no others."""
    with ExitStack() as stack:
        for engine in engines:
            server = _Server((engine.host, engine.port), type("Handler", (_Handler,), {"of": engine}))
            engine.port = stack.enter_context(served(server)).server_port
            stack.callback(engine.over.set)
        yield


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: Any) -> None:
        """Nothing: who asks may leave."""


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    of: RuleEngine

    def do_GET(self) -> None:
        """What is looked at of a llama-server: that it is well, and which answers it is at."""
        of = self.of
        looks: dict[str, Any] = {"/health": {"status": "ok"}, "/v1/models": {"data": [{"id": "rule"}]}}
        looks["/slots"] = [{"is_processing": True} for _ in range(len(of.asked) - len(of.ended))]
        self._send(200 if self.path in looks else 404, looks.get(self.path, {}))

    def do_POST(self) -> None:
        """One chat."""
        question = json.loads(self.content())
        self.of.asked.append(question)
        try:
            self._chat(question)
        finally:
            self.of.ended.append(question)

    def _chat(self, question: Question) -> None:
        of, key = self.of, self.headers.get("Authorization")
        of.keys.append(key)
        if of.hangs:
            self._wait_until_left()
        elif of.key and key != f"Bearer {of.key}":
            self._refuse(401, f"no such key: {key}")
        elif of.status != 200:
            self._refuse(of.status, of.says)
        else:
            self._answer(question, of.rule(question))

    def _wait_until_left(self) -> None:
        self.connection.settimeout(0.05)
        while not self.of.over.is_set():
            try:
                if not self.connection.recv(1):
                    self.of.left.set()
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        self.close_connection = True

    def _refuse(self, status: int, text: str) -> None:
        self._send(status, {"error": {"message": text}})

    def _send(self, status: int, said: Any) -> None:
        body = json.dumps(said).encode()
        self.give(status, body, ("Content-Type", "application/json"))

    def _answer(self, question: Question, reply: Reply) -> None:
        assert question["stream"] is True, "a team reads answers as they are written"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            self._events(question, reply)
        except ConnectionError:
            self.of.left.set()
            self.close_connection = True

    def _events(self, question: Question, reply: Reply) -> None:
        words = reply.text.split(" ") if reply.text else []
        for place, word in enumerate(words):
            self._event({"content": word if place == 0 else f" {word}"})
        while self.of.endless and not self.of.over.is_set():
            self._event({"content": " more"})
        for index, (name, arguments) in enumerate(reply.calls):
            function = {"name": name, "arguments": arguments}
            call = {
                "index": index,
                "id": f"call_{len(self.of.asked)}_{index}",
                "type": "function",
                "function": function,
            }
            self._event({"tool_calls": [call]})
        self._event({}, "tool_calls" if reply.calls else "stop")
        if self.of.counts and (question.get("stream_options") or {}).get("include_usage"):
            written = len(words) + 5 * len(reply.calls)
            usage = {"prompt_tokens": 10, "completion_tokens": written, "total_tokens": 10 + written}
            self._piece(b"data: " + json.dumps({**self._head(), "choices": [], "usage": usage}).encode() + b"\n\n")
        self._piece(b"data: [DONE]\n\n")
        self._piece(b"")

    def _head(self) -> dict[str, Any]:
        return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "rule"}

    def _event(self, delta: dict[str, Any], reason: str | None = None) -> None:
        choice = {"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": reason}
        self._piece(b"data: " + json.dumps({**self._head(), "choices": [choice]}).encode() + b"\n\n")

    def _piece(self, piece: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
