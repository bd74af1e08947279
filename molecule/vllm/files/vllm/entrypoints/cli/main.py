"""``vllm serve`` as the real one behaves at 0.32 (facts of vLLM: its key, its routes, its end, its journal).

* All arguments but those left out are written to the journal, its key too if it is one of them.
* ``VLLM_API_KEY`` closes what begins with ``/v1``; ``/invocations``, ``/tokenize``, ``/metrics`` and more ask nobody.
* SIGTERM breaks answers off at once: HTTP 200, ``"abort"``, ``[DONE]``; with ``--shutdown-timeout`` they have time.
* Its engine listens on ``VLLM_HOST_IP``, or on all addresses where nobody says one.
* ``--middleware`` names a class that is put in front of everything.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

OPEN = {"get": ["/health", "/metrics", "/version", "/load", "/ping"], "post": ["/invocations", "/tokenize", "/ping"]}
CLOSED = {
    "get": ["/v1/models", "/v1/responses/{response_id}"],
    "post": ["/v1/completions", "/v1/chat/completions", "/v1/load_lora_adapter"],
}
WITH_BODY = ("/v1/completions", "/v1/chat/completions", "/v1/load_lora_adapter", "/tokenize")
"""Whose page says that they take a body; /invocations reads one, and says nothing of it (0.32)."""
ANSWERS = ("/v1/completions", "/v1/chat/completions", "/invocations")
ENDING = threading.Event()


def arguments() -> argparse.Namespace:
    """What the stand-in takes; what the real one does not know, it refuses as well."""
    parser = argparse.ArgumentParser("vllm serve")
    parser.add_argument("model")
    for name in (
        "served-model-name",
        "host",
        "load-format",
        "dtype",
        "kv-cache-dtype",
        "reasoning-parser",
        "quantization",
    ):
        parser.add_argument(f"--{name}")
    for name in ("tool-call-parser", "speculative-config", "allowed-media-domains", "api-key"):
        parser.add_argument(f"--{name}")
    for name in ("port", "max-num-seqs", "tensor-parallel-size", "kv-cache-memory-bytes", "cpu-offload-gb"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--shutdown-timeout", type=int, default=0)
    parser.add_argument("--gpu-memory-utilization", type=float)
    for name in ("enforce-eager", "disable-uvicorn-access-log", "enable-auto-tool-choice", "language-model-only"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--middleware", action="append", default=[])
    return parser.parse_args(sys.argv[2:])


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    page: argparse.Namespace
    length: int

    def log_message(self, *_: Any) -> None:
        """Access logs are off."""

    def tell(self, status: int, content: Any) -> None:
        """An answer in JSON."""
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def may(self) -> bool:
        """Whether the key lets it in, with whatever stands in front of the application."""
        headers = [(name.lower().encode(), value.encode()) for name, value in self.headers.items()]
        seen: dict[str, Any] = {"headers": headers}

        async def application(scope: Any, _receive: Any, _send: Any) -> None:
            seen["headers"] = scope["headers"]

        for name in self.page.middleware:
            module, _, word = name.rpartition(".")
            made = getattr(importlib.import_module(module), word)(application)
            asyncio.run(made({"type": "http", "headers": headers}, None, None))
        key = os.environ.get("VLLM_API_KEY") or self.page.api_key
        return not key or dict(seen["headers"]).get(b"authorization", b"").decode() == f"Bearer {key}"

    def do_GET(self) -> None:
        """What is looked at."""
        if self.path.startswith("/v1") and not self.may():
            self.tell(401, {"error": "Unauthorized"})
        elif self.path == "/openapi.json":
            paths: dict[str, dict[str, Any]] = {}
            for table in (OPEN, CLOSED):
                for method, named in table.items():
                    for path in named:
                        paths.setdefault(path, {})[method] = {"requestBody": {}} if path in WITH_BODY else {}
            self.tell(200, {"paths": paths})
        elif self.path == "/v1/models":
            card = {"id": self.page.served_model_name, "object": "model", "max_model_len": self.length}
            self.tell(200, {"object": "list", "data": [card]})
        elif self.path in OPEN["get"]:
            self.tell(200, {})
        elif self.path in (*OPEN["post"], *CLOSED["post"]):
            self.tell(405, {"detail": "Method Not Allowed"})
        else:
            self.tell(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        """What it computes."""
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.startswith("/v1") and not self.may():
            self.tell(401, {"error": "Unauthorized"})
        elif self.path in ANSWERS:
            asked = json.loads(content or b"{}")
            if not isinstance(asked, dict):
                self.tell(400 if self.path == "/invocations" else 422, {"detail": "no such request"})
                return
            until = time.monotonic() + asked.get("seconds", 0)
            while time.monotonic() < until and not ENDING.is_set():
                time.sleep(0.05)
            reason = "abort" if ENDING.is_set() else "length"
            usage = {"completion_tokens": asked.get("max_tokens", 16)}
            self.tell(200, {"choices": [{"text": "hello", "finish_reason": reason}], "usage": usage})
        elif self.path in OPEN["post"]:
            self.tell(200, {})
        else:
            self.tell(404, {"detail": "Not Found"})


def room_for(page: argparse.Namespace) -> int:
    """The tokens of a request; ends as the real one does where there is no room for them."""
    model = json.loads((Path(page.model) / "config.json").read_text(encoding="utf-8"))
    length = page.max_model_len or model["max_position_embeddings"]
    if length > model.get("room", length):
        needed = "is larger than the available KV cache memory"
        sys.exit(f"ValueError: To serve at least one request with the model's max seq len ({length}), memory {needed}.")
    time.sleep(model.get("load_s", 0))
    return int(model.get("silently", length))


def main() -> None:
    """Serve until it is told to end."""
    page = arguments()
    told = {name: value for name, value in vars(page).items() if value}
    sys.stdout.write(f"(APIServer pid={os.getpid()}) INFO non-default args: {told}\n")
    Handler.page, Handler.length = page, room_for(page)
    engine = socket.create_server((os.environ.get("VLLM_HOST_IP", ""), 0))
    server = ThreadingHTTPServer((page.host, page.port), Handler)

    def end(*_: Any) -> None:
        ENDING.set() if not page.shutdown_timeout else threading.Timer(page.shutdown_timeout, ENDING.set).start()
        threading.Thread(target=server.shutdown).start()

    signal.signal(signal.SIGTERM, end)
    server.daemon_threads = False  # answers that run are waited for
    server.serve_forever()
    server.server_close()
    engine.close()
