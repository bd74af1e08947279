"""The API (upstream's endpoints), served by uvicorn: only after the model is loaded does it listen.

An answer takes as many ``seconds`` as its question says, which is a word of the stand-in's own. As in upstream, whose
framework does it, a request's body is read before its key is looked at.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import uvicorn
from common import model
from common.auth import may


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Health without a key and without a model; the model's card and one token with both."""
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        part = await receive()
        body, more = body + part.get("body", b""), part.get("more_body", False)
    status, answer = answered(scope["path"], scope["method"], dict(scope["headers"]), body)
    if "choices" in answer:
        await asyncio.sleep(json.loads(body).get("seconds", 0))
    data = json.dumps(answer).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})


def answered(path: str, method: str, headers: dict[bytes, bytes], body: bytes) -> tuple[int, dict[str, Any]]:
    """The status and the answer."""
    if path == "/health":
        return 200, {"status": "healthy", "issues": []}
    if path == "/.well-known/serviceinfo":
        return 200, {"software": {"name": "TabbyAPI"}}
    if not may(headers.get(b"authorization", b"").decode()):
        return 401, {"detail": "Please provide an API key"}
    if not model.loaded:
        return 503, {"detail": "No models are currently loaded."}
    if method == "GET":
        return 200, {"id": model.loaded["model"].name, "object": "model"}
    choice: dict[str, Any] = {"index": 0, "finish_reason": "length", "text": " world"}
    if path == "/v1/chat/completions":
        choice["message"] = {"role": "assistant", "content": choice.pop("text")}
    usage = {"prompt_tokens": 1, "completion_tokens": json.loads(body)["max_tokens"]}
    return 200, {"choices": [choice], "usage": usage, "model": model.loaded["model"].name}


async def start_api(host: str, port: int) -> None:
    """Serve until the process ends."""
    await uvicorn.Server(uvicorn.Config(app, host=host, port=port, log_level="warning", lifespan="off")).serve()
