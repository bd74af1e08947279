"""A stand-in for an engine: streams numbered parts, and answers 503 while it loads, as llama-server does."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

STARTED = time.monotonic()
LOCK = threading.Lock()
SEEN = {"busy": 0, "most": 0, "early": 0}
"""Requests that are answered now, the most at once, and how many came while it loaded."""
LARGE = 5_000_000
"""Characters of a page that no buffer holds."""


class Handler(BaseHTTPRequestHandler):
    """``{"parts": N, "pause": S, "before": S}`` is answered with N parts, S seconds between them.

    With the header ``X-Answers-First`` the answer comes before the body is read.
    """

    protocol_version = "HTTP/1.1"
    loads_s = 0.0

    def do_GET(self) -> None:
        """Whether it has loaded, and what it has seen."""
        self._answer(
            503 if self._loads() else 200,
            {**SEEN, "path": self.path, "engine": os.getpid(), "forwarded": self.headers["X-Forwarded-For"]}
            | ({"filling": "x" * LARGE} if self.path.endswith("/large") else {}),
        )

    def do_POST(self) -> None:
        """A stream, as OpenAI's are, by the number of the process."""
        if self.headers["X-Answers-First"]:
            self._answer(200, SEEN)
            self.rfile.read(int(self.headers["Content-Length"]))
            return
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._loads():
            SEEN["early"] += 1
            self._answer(503, {"error": "Loading model"})
            return
        with LOCK:
            SEEN["busy"] += 1
            SEEN["most"] = max(SEEN["most"], SEEN["busy"])
        try:
            self._stream(asked)
        finally:
            with LOCK:
                SEEN["busy"] -= 1
        self.wfile.write(b"0\r\n\r\n")  # at last, as the next request may come at that moment

    def _stream(self, asked: dict[str, Any]) -> None:
        time.sleep(asked.get("before", 0))
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(asked["parts"]):
            self._part({"number": number, "engine": os.getpid()})
            time.sleep(asked["pause"])
        self._part({"finish_reason": "stop"})

    def _part(self, content: dict[str, Any]) -> None:
        line = f"data: {json.dumps(content)}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _loads(self) -> bool:
        return time.monotonic() - STARTED < self.loads_s

    def handle(self) -> None:
        """Answer; who goes away before the end is no error of ours, as HAProxy does when it has seen a status."""
        with contextlib.suppress(ConnectionError):
            super().handle()

    def log_message(self, *_arguments: Any) -> None:
        """Say nothing."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--loads", type=float, required=True)
    told = parser.parse_args()
    Handler.loads_s = told.loads
    ThreadingHTTPServer.request_queue_size = 128
    ThreadingHTTPServer(("127.0.0.1", told.port), Handler).serve_forever()
