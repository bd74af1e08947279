"""The routes below ``/v1`` that answer in the words of OpenAI's API."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tests.doubles.ollama.server.answering import App, Turn, begin_chat, embed_texts
from tests.doubles.ollama.server.errors import Refused
from tests.doubles.ollama.server.golang import json_line
from tests.doubles.ollama.server.http_server import Call, openai_error
from tests.doubles.ollama.server.names import parse_name
from tests.doubles.ollama.server.native_routes import listed


def _plain(content: Any) -> str:
    """The text of a message, whichever of its forms it has."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Refused(400, f"invalid message content type: {type(content).__name__}")
    texts = [str(part.get("text") or "") for part in content if isinstance(part, dict)]
    return " ".join(text for text in texts if text)


def _native_chat(body: dict[str, Any], limit: Any) -> dict[str, Any]:
    messages = body.get("messages") or []
    plain = []
    for message in messages:
        called = message.get("tool_calls") is not None and message.get("content") is None
        plain.append({"role": message.get("role"), "content": "" if called else _plain(message.get("content"))})
    options = {} if limit is None else {"num_predict": limit}
    return {"model": body.get("model"), "messages": plain, "options": options, "tools": body.get("tools")}


def _data(value: Any) -> bytes:
    return b"data: " + json_line(value) + b"\n"


def _usage(turn: Turn) -> dict[str, int]:
    total = turn.prompt_tokens + turn.spoken
    return {"prompt_tokens": turn.prompt_tokens, "completion_tokens": turn.spoken, "total_tokens": total}


def post_v1_chat(app: App, call: Call) -> None:
    """Answer in a conversation, as OpenAI's clients ask (middleware/openai.go, ChatMiddleware)."""
    body = call.json(empty="EOF")
    if not body.get("messages"):
        raise Refused(400, "[] is too short - 'messages'")
    turn = begin_chat(app, call.waiting, _native_chat(body, body.get("max_tokens")))
    head = {"id": "chatcmpl-1", "created": int(time.time()), "model": turn.model, "system_fingerprint": "fp_ollama"}
    if body.get("stream"):
        usage = bool((body.get("stream_options") or {}).get("include_usage"))
        events = _chat_chunks(app, call, turn, head | {"object": "chat.completion.chunk"}, usage=usage)
        call.stream(events, "text/event-stream", lambda message: _data(openai_error(500, message)))
        return
    message = {"role": "assistant", "content": app.answer(turn, call.waiting)}
    choice = {"index": 0, "message": message, "finish_reason": turn.reason}
    whole = head | {"object": "chat.completion", "choices": [choice], "usage": _usage(turn)}
    call.answer(whole, kind="application/json")


def _chat_chunks(app: App, call: Call, turn: Turn, head: dict[str, Any], *, usage: bool) -> Iterator[bytes]:
    role: dict[str, Any] = {"role": "assistant"}
    for word in app.pieces(turn, call.waiting):
        yield _data(head | {"choices": [{"index": 0, "delta": role | {"content": word}, "finish_reason": None}]})
        role = {}
    if role:
        yield _data(head | {"choices": [{"index": 0, "delta": role | {"content": ""}, "finish_reason": None}]})
    yield _data(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": turn.reason}]})
    if usage:
        yield _data(head | {"choices": [], "usage": _usage(turn)})
    yield b"data: [DONE]\n\n"


def post_v1_embeddings(app: App, call: Call) -> None:
    """Turn texts into vectors, as OpenAI's clients ask."""
    body = call.json(empty="EOF")
    asked, texts = str(body.get("model") or ""), body.get("input")
    if not texts or not isinstance(texts, list):
        raise Refused(400, "invalid input")
    model = app.model(asked, Refused(404, f"model '{asked}' not found"), f'model "{asked}" not found')
    vectors = embed_texts(app, call.waiting, body, texts, model)
    data = [{"object": "embedding", "embedding": vector, "index": index} for index, vector in enumerate(vectors)]
    count = sum(max(len(text.split()), 1) for text in texts)
    usage = {"prompt_tokens": count, "total_tokens": count}
    call.answer({"object": "list", "data": data, "model": asked, "usage": usage}, kind="application/json")


def get_v1_models(app: App, call: Call) -> None:
    """List the models, as OpenAI's clients ask."""
    data = []
    for entry in listed(app):
        created = int(datetime.fromisoformat(entry["modified_at"]).timestamp())
        owner = parse_name(entry["model"]).namespace
        data.append({"id": entry["model"], "object": "model", "created": created, "owned_by": owner})
    # openai/openai.go, ToListCompletion: a slice that nothing was added to is written as null, not as an empty list.
    call.answer({"object": "list", "data": data or None}, kind="application/json")
