"""The API (upstream's endpoints): only after the model is loaded does it listen."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from common import model
from common.auth import may


class Handler(BaseHTTPRequestHandler):
    """Answers in OpenAI's words."""

    def do_GET(self) -> None:
        """Health without a key and without a model; the model's card with both."""
        if self.path == "/health":
            self.reply(200, {"status": "healthy", "issues": []})
        elif self.allowed():
            self.reply(200, {"id": model.loaded["model"].name, "object": "model"})

    def do_POST(self) -> None:
        """One token."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not self.allowed():
            return
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length", "text": " world"}
        if self.path == "/v1/chat/completions":
            choice["message"] = {"role": "assistant", "content": choice.pop("text")}
        usage = {"prompt_tokens": 1, "completion_tokens": asked["max_tokens"]}
        self.reply(200, {"choices": [choice], "usage": usage, "model": model.loaded["model"].name})

    def allowed(self) -> bool:
        """Whether there is a key and a model; else the answer is given here."""
        if not may(self.headers.get("authorization", "")):
            self.reply(401, {"detail": "Please provide an API key"})
        elif not model.loaded:
            self.reply(503, {"detail": "No models are currently loaded."})
        else:
            return True
        return False

    def reply(self, status: int, answer: dict[str, Any]) -> None:
        """Send it as JSON."""
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def start_api(host: str, port: int) -> None:
    """Serve until the process ends."""
    ThreadingHTTPServer((host, port), Handler).serve_forever()
