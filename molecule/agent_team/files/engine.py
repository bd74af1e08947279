"""An engine for three: the coordinator asks both members, one after the other; a member says who it is."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MEMBERS = ("researcher", "coder")


class Engine(BaseHTTPRequestHandler):
    """Answers chats as OpenAI does, in one event."""

    def do_POST(self) -> None:
        """One chat."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answers = [message["content"] for message in asked["messages"] if message["role"] == "tool"]
        delta: dict[str, Any] = {"role": "assistant", "content": f"{asked['model']} was asked"}
        reason = "stop"
        if asked["model"] == "coordinator" and len(answers) < len(MEMBERS):
            function = {"name": MEMBERS[len(answers)], "arguments": json.dumps({"input": "What do you know?"})}
            call = {"index": 0, "id": f"call_{len(answers)}", "type": "function", "function": function}
            delta, reason = {"role": "assistant", "tool_calls": [call]}, "tool_calls"
        elif answers:
            delta["content"] = ", ".join(answers)
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": asked["model"]}
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for part in ({"delta": delta, "finish_reason": None}, {"delta": {}, "finish_reason": reason}):
            self._event({**head, "choices": [{"index": 0, **part}]})
        self._event({**head, "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, value: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")

    def log_message(self, *_: Any) -> None:
        """Nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Engine).serve_forever()
