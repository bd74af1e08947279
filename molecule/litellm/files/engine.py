"""An engine of the tests: answers in its provider's words, speaks, or fails in the way that ``PUT /mode`` told it to.

``GET /seen`` says how many completions were asked for, and of the last one path, key and the names of its fields.
"""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PORT = int(sys.argv[1])
STATE: dict[str, Any] = {"mode": "answer", "asked": 0, "key": "", "path": "", "fields": []}
LONGER_THAN_ANY_TIMEOUT_S = 60.0
SPEECH = "/v1/audio/speech"
SOUND = b"ID3 as it leaves an encoder"
PARTS = 4
BETWEEN_PARTS_S = 0.7
TOO_LONG = "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens."
# What each failure looks like on the wire: status, error, headers. The words are those of OpenAI's API.
FAILURES: dict[str, tuple[int, dict[str, Any], dict[str, str]]] = {
    "fail": (500, {"message": "out of memory"}, {}),
    "limit": (429, {"message": "Rate limit reached", "code": "rate_limit_exceeded"}, {"retry-after": "2"}),
    "long": (
        400,
        {"message": TOO_LONG, "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"},
        {},
    ),
}


class Handler(BaseHTTPRequestHandler):
    """Serves the completions and, for the tests, the mode."""

    def do_GET(self) -> None:
        """What was seen."""
        self.reply(200, STATE)

    def do_PUT(self) -> None:
        """Take the mode of the body: answer, think, empty, fail, hang, refuse, limit, long, late S, drip, stall."""
        STATE["mode"] = self.body().decode()
        self.reply(200, STATE)

    def do_POST(self) -> None:
        """A completion, or what the mode makes of it."""
        asked = json.loads(self.body())
        key = self.headers.get("authorization", "").removeprefix("Bearer ") or self.headers.get("x-api-key", "")
        STATE.update(asked=STATE["asked"] + 1, key=key, path=self.path, fields=sorted(asked))
        mode, _, seconds = str(STATE["mode"]).partition(" ")
        if mode in ("hang", "late"):
            time.sleep(float(seconds or LONGER_THAN_ANY_TIMEOUT_S))
        if mode == "refuse":
            self.reply(401, {"error": {"message": f"Incorrect API key provided: {key}"}})
        elif mode in FAILURES:
            status, error, headers = FAILURES[mode]
            self.reply(status, {"error": error}, headers)
        elif self.path == SPEECH:
            self.speak(b"" if mode == "empty" else SOUND)
        elif asked.get("stream") and self.path.endswith("/chat/completions"):
            self.stream(mode)
        else:
            self.reply(200, answer(self.path, "" if mode == "empty" else f"port {PORT}", thinks=mode == "think"))

    def stream(self, mode: str) -> None:
        """A completion in parts: at once, one after the other (drip), or never another after the second (stall)."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for part in range(PARTS):
            time.sleep(BETWEEN_PARTS_S if mode == "drip" else 0.0)
            if mode == "stall" and part == PARTS // 2:
                time.sleep(LONGER_THAN_ANY_TIMEOUT_S)
            choice = {"index": 0, "delta": {"content": f"{PORT}-{part} "}, "finish_reason": None}
            about = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": str(PORT)}
            self.wfile.write(b"data: " + json.dumps({**about, "choices": [choice]}).encode() + b"\n\n")
            self.wfile.flush()
        self.wfile.write(b"data: [DONE]\n\n")

    def speak(self, sound: bytes) -> None:
        """Audio, or the empty answer of a service that failed at a word: its status is the same."""
        self.send_response(200)
        self.send_header("content-type", "audio/mpeg")
        self.send_header("content-length", str(len(sound)))
        self.end_headers()
        self.wfile.write(sound)

    def body(self) -> bytes:
        """The request's body."""
        return self.rfile.read(int(self.headers["content-length"]))

    def reply(self, status: int, answer: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        """Send ``answer`` as JSON."""
        data = json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def answer(path: str, content: str, *, thinks: bool = False) -> dict[str, Any]:
    """A completion that says ``content`` in the words of the provider whose path it is, perhaps with a thought."""
    message = {"role": "assistant", "content": content} | ({"reasoning_content": "Hm."} if thinks else {})
    if path == "/api/chat":
        return {"model": str(PORT), "created_at": "2026-01-01T00:00:00Z", "message": message, "done": True}
    if path == "/v1/messages":
        about = {"id": "1", "type": "message", "role": "assistant", "model": str(PORT), "stop_reason": "end_turn"}
        spent = {"input_tokens": 1, "output_tokens": 2}
        return {**about, "content": [{"type": "text", "text": content}], "usage": spent}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    about = {"id": "1", "object": "chat.completion", "created": 1, "model": str(PORT)}
    return {**about, "choices": [choice], "usage": usage}


ThreadingHTTPServer(("0.0.0.0", PORT), Handler).serve_forever()  # noqa: S104  # reached by the tests from the host
