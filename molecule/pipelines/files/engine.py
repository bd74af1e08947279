"""An engine that says a question again."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Engine(BaseHTTPRequestHandler):
    """Answers chats as OpenAI does, in one event."""

    def do_POST(self) -> None:
        """One chat."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = f"[{asked['messages'][-1]['content']}]"
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": asked["model"]}
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for part in ({"delta": {"content": text}, "finish_reason": None}, {"delta": {}, "finish_reason": "stop"}):
            self.wfile.write(b"data: " + json.dumps({**head, "choices": [{"index": 0, **part}]}).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: Any) -> None:
        """Nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Engine).serve_forever()
