"""An engine of the tests: answers in OpenAI's words, or fails in the way that ``PUT /mode`` told it to.

``GET /seen`` says how many completions were asked for and which key the last one carried.
"""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PORT = int(sys.argv[1])
STATE: dict[str, Any] = {"mode": "answer", "asked": 0, "key": ""}
LONGER_THAN_ANY_TIMEOUT_S = 60.0


class Handler(BaseHTTPRequestHandler):
    """Serves the completions and, for the tests, the mode."""

    def do_GET(self) -> None:
        """What was seen."""
        self.reply(200, STATE)

    def do_PUT(self) -> None:
        """Take the mode that the body names: answer, empty, fail, hang or refuse."""
        STATE["mode"] = self.body().decode()
        self.reply(200, STATE)

    def do_POST(self) -> None:
        """A completion, or what the mode makes of it."""
        self.body()
        STATE["asked"] += 1
        STATE["key"] = self.headers.get("authorization", "").removeprefix("Bearer ")
        if STATE["mode"] == "hang":
            time.sleep(LONGER_THAN_ANY_TIMEOUT_S)
        if STATE["mode"] == "fail":
            self.reply(500, {"error": {"message": "out of memory"}})
        elif STATE["mode"] == "refuse":
            self.reply(401, {"error": {"message": f"Incorrect API key provided: {STATE['key']}"}})
        else:
            self.reply(200, completion("" if STATE["mode"] == "empty" else f"port {PORT}"))

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


def completion(content: str) -> dict[str, Any]:
    """A chat completion that says ``content``."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    about = {"id": "1", "object": "chat.completion", "created": 1, "model": str(PORT)}
    return {**about, "choices": [choice], "usage": usage}


ThreadingHTTPServer(("0.0.0.0", PORT), Handler).serve_forever()  # noqa: S104  # reached by the tests from the host
