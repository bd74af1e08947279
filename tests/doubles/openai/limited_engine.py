"""An engine for tests of ``trying``: it answers as llama-server does, up to a ceiling that it does not tell.

    python3 limited_engine.py --port N --ctx-size N [--ceiling N] [--does WHAT] [--api-key-file FILE]

``--does``: ``crash`` or ``hang`` beyond the ceiling in the place of ending for lack of room; ``answer-late`` (it loads
beyond its ceiling, and fails when it is asked); ``drop`` (it reads only the last two thirds of a prompt, and counts all
of it).

At ``/v1/token/encode`` and ``/v1/completions`` it answers as tabbyAPI does, which takes text alone: a word is a token,
every third one of two, and one more begins each prompt.
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
from typing import Any

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


def tokens_of(text: str) -> list[int]:
    """A text as numbers of tokens."""
    tokens = [1]
    for number, word in enumerate(text.split()):
        tokens += [100 + int(word)] * (2 if number % 3 == 2 else 1)
    return tokens


def prompt_in(asked: dict[str, Any]) -> list[int]:
    """The tokens that are asked for, in the body of any of its addresses."""
    prompt = asked.get("text") or asked["prompt"]
    return tokens_of(prompt) if isinstance(prompt, str) else prompt


def answer_of(asked: dict[str, Any], tokens: int, likely: list[dict[str, float]], *, is_text: bool) -> dict[str, Any]:
    """What it answers, in the form of the address that it is asked at."""
    if not is_text:
        return {"tokens_evaluated": tokens, "completion_probabilities": [{"top_logprobs": likely}]}
    known = {f"t{one['id']}": one["logprob"] for one in likely} if asked["top_logprobs"] else None
    choice = {"text": "", "logprobs": {"top_logprobs": [known]}}
    return {"choices": [choice], "usage": {"prompt_tokens": tokens}}


def load(does: str) -> None:
    """What becomes of a context for which there is no room."""
    if does == "hang":
        time.sleep(3600)
    if does != "answer-late":
        sys.exit("Segmentation fault" if does == "crash" else NO_ROOM)


def main() -> None:
    """Serve, or end as it is told to."""
    page = arguments()
    is_beyond = page.ctx_size > page.ceiling
    if is_beyond:
        load(page.does)
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
            prompt = prompt_in(asked)
            if key and self.headers["Authorization"] != f"Bearer {key}":
                self.tell(401, {"error": "no key"})
            elif self.path == "/v1/token/encode":
                self.tell(200, {"tokens": prompt, "length": len(prompt)})
            elif is_beyond:
                sys.stderr.write(f"{NO_ROOM}\n")
                sys.stderr.flush()
                os._exit(1)  # as a process does that was killed
            elif len(prompt) >= page.ctx_size:
                self.tell(400, {"error": "the prompt is longer than the context"})
            else:
                read = prompt[len(prompt) // 3 :] if page.does == "drop" else prompt
                self.tell(200, answer_of(asked, len(prompt), following(read), is_text=self.path != "/completion"))

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    ThreadingHTTPServer(("127.0.0.1", page.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
