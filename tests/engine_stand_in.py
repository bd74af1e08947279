"""An engine for tests of ``trying``: it answers as llama-server does, up to a ceiling that it does not tell.

    python3 engine_stand_in.py --port N --ctx-size N [--ceiling N] [--does WHAT] [--api-key-file FILE]

``--does``: ``crash`` or ``hang`` beyond the ceiling in the place of ending for lack of room; ``answer-late`` (it loads
beyond its ceiling, and fails when it is asked); ``drop`` (it reads only the last two thirds of a prompt, and counts all
of it).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

NO_ROOM = "cudaMalloc failed: out of memory"


def arguments() -> argparse.Namespace:
    """What it is started with."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ctx-size", type=int, required=True)
    parser.add_argument("--ceiling", type=int, default=10**9)
    parser.add_argument("--does", default="")
    parser.add_argument("--api-key-file")
    return parser.parse_args()


def following(prompt: list[int]) -> list[dict[str, float]]:
    """Log-probabilities that follow from each token of a prompt."""
    digest = hashlib.sha256(repr(prompt).encode()).digest()
    return [{"id": token, "logprob": -1 - digest[token] / 256} for token in range(5)]


def main() -> None:
    """Serve, or end as it is told to."""
    page = arguments()
    is_beyond = page.ctx_size > page.ceiling
    if is_beyond and page.does == "hang":
        time.sleep(3600)
    if is_beyond and page.does != "answer-late":
        sys.exit("Segmentation fault" if page.does == "crash" else NO_ROOM)
    key = Path(page.api_key_file).read_text(encoding="utf-8").strip() if page.api_key_file else ""

    class Handler(BaseHTTPRequestHandler):
        def tell(self, status: int, said: object) -> None:
            """An answer in JSON."""
            body = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            """Its health."""
            self.tell(200, {"status": "ok"})

        def do_POST(self) -> None:
            """An answer."""
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt = asked["prompt"]
            if key and self.headers["Authorization"] != f"Bearer {key}":
                self.tell(401, {"error": "no key"})
            elif is_beyond:
                sys.stderr.write(f"{NO_ROOM}\n")
                sys.stderr.flush()
                os._exit(1)  # as a process does that was killed
            elif len(prompt) >= page.ctx_size:
                self.tell(400, {"error": "the prompt is longer than the context"})
            else:
                read = prompt[len(prompt) // 3 :] if page.does == "drop" else prompt
                likely = [{"top_logprobs": following(read)}]
                self.tell(200, {"tokens_evaluated": len(prompt), "completion_probabilities": likely})

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    ThreadingHTTPServer(("127.0.0.1", page.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
