"""An engine of the tests, which asks for a key: it lists models, and answers or fails as ``PUT /mode`` says."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PORT = 9001
STATE: dict[str, Any] = {"mode": "answer", "asked": 0, "whole": 0, "refused": 0}
WORDS = ("Hello", " from", " the", " engine")
KEY = Path("/etc/engine.key").read_text(encoding="utf-8")


class Handler(BaseHTTPRequestHandler):
    """Serves models and completions and, for the tests, the mode."""

    def do_GET(self) -> None:
        """The models, or what was seen."""
        if self.path == "/seen":
            self.reply(200, STATE)
        elif self.is_known():
            names = [] if STATE["mode"] == "no models" else ["small", "other", "find"]
            self.reply(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in names]})

    def do_PUT(self) -> None:
        """Take the mode of the body.

        answer, empty, cut, fail, no models, slow SECONDS (for each part), no vectors, one vector (for all texts).
        """
        STATE["mode"] = self.body().decode()
        self.reply(200, STATE)

    def do_POST(self) -> None:
        """A completion or vectors, or what the mode makes of it."""
        asked = json.loads(self.body())
        if not self.is_known():
            return
        if self.path == "/v1/embeddings":
            self.embed(asked)
            return
        STATE["asked"] += 1
        mode, _, seconds = str(STATE["mode"]).partition(" ")
        if mode == "fail":
            self.reply(500, {"error": {"message": "out of memory"}})
            return
        words = () if mode == "empty" else WORDS
        pause_s = float(seconds) if mode == "slow" else 0.0
        reason = "abort" if mode == "cut" else "stop"
        if asked.get("stream"):
            self.stream(words, pause_s, reason)
        else:
            time.sleep(pause_s * len(words))
            message = {"role": "assistant", "content": "".join(words)}
            self.reply(200, completion({"index": 0, "message": message, "finish_reason": reason}))
        STATE["whole"] += 1

    def embed(self, asked: dict[str, Any]) -> None:
        """A vector of each text, the same for the same text."""
        if asked["model"] != "find" or STATE["mode"] in ("fail", "no vectors"):
            self.reply(500, {"error": {"message": f"no vectors: out of memory, or no model {asked['model']}"}})
            return
        texts = [b"" if STATE["mode"] == "one vector" else text.encode() for text in asked["input"]]
        vectors = [[byte / 255 - 0.5 for byte in hashlib.sha256(text).digest()] for text in texts]
        data = [{"object": "embedding", "index": place, "embedding": one} for place, one in enumerate(vectors)]
        self.reply(200, {"object": "list", "model": "find", "data": data})

    def is_known(self) -> bool:
        """Whether who asks has the key; else it is refused."""
        if self.headers.get("authorization") == f"Bearer {KEY}":
            return True
        STATE["refused"] += 1
        self.reply(401, {"error": {"message": "Invalid API Key"}})
        return False

    def stream(self, words: tuple[str, ...], pause_s: float, reason: str) -> None:
        """A completion in parts."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        choices: list[dict[str, Any]] = [
            {"index": 0, "delta": {"content": word}, "finish_reason": None} for word in words
        ]
        for choice in [*choices, {"index": 0, "delta": {}, "finish_reason": reason}]:
            time.sleep(pause_s)
            self.wfile.write(b"data: " + json.dumps(completion(choice)).encode() + b"\n\n")
            self.wfile.flush()
        self.wfile.write(b"data: [DONE]\n\n")

    def body(self) -> bytes:
        """The request's body."""
        return self.rfile.read(int(self.headers["content-length"]))

    def reply(self, status: int, answer: dict[str, Any]) -> None:
        """Send ``answer`` as JSON."""
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def handle(self) -> None:
        """Answer; who goes away before the end is no error of ours."""
        with contextlib.suppress(ConnectionError):
            super().handle()


def completion(choice: dict[str, Any]) -> dict[str, Any]:
    """A part of an answer, or a whole one."""
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "small", "choices": [choice]}


ThreadingHTTPServer(("0.0.0.0", PORT), Handler).serve_forever()  # noqa: S104  # reached by the tests from the host
