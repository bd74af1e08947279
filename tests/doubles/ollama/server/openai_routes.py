"""The routes below ``/v1`` that answer in the words of OpenAI's API."""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tests.doubles.ollama.server.answering import App, Turn, begin_chat
from tests.doubles.ollama.server.errors import Refused
from tests.doubles.ollama.server.golang import json_line
from tests.doubles.ollama.server.http_server import Call, openai_error
from tests.doubles.ollama.server.names import parse_name
from tests.doubles.ollama.server.native_routes import embedded, listed

_EFFORTS: dict[str, Any] = {"": None, "none": False, "minimal": "low", "xhigh": "max", "ultra": "max"}
_EFFORTS |= {level: level for level in ("low", "medium", "high", "max")}


def _effort(value: Any) -> Any:
    """What a reasoning effort means for ``think`` (openai/openai.go, thinkFromReasoningEffort)."""
    effort = str(value or "")
    if effort not in _EFFORTS:
        levels = '"minimal", "low", "medium", "high", "xhigh", "ultra", "max", or "none"'
        raise Refused(400, f'invalid reasoning value: "{effort}" (must be {levels})')
    return _EFFORTS[effort]


def _plain(content: Any) -> str:
    """The text of a message, whichever of its forms it has."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Refused(400, f"invalid message content type: {type(content).__name__}")
    texts = [str(part.get("text") or "") for part in content if isinstance(part, dict)]
    return " ".join(text for text in texts if text)


def _native_chat(body: dict[str, Any], limit: Any, effort: Any) -> dict[str, Any]:
    messages = body.get("messages") or []
    plain = []
    for message in messages:
        called = message.get("tool_calls") is not None and message.get("content") is None
        plain.append({"role": message.get("role"), "content": "" if called else _plain(message.get("content"))})
    options = {} if limit is None else {"num_predict": limit}
    tools = body.get("tools") or []
    return {"model": body.get("model"), "messages": plain, "options": options, "tools": tools, "think": effort}


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
    reasoning = body.get("reasoning")
    effort = _effort(reasoning.get("effort") if isinstance(reasoning, dict) else body.get("reasoning_effort"))
    turn = begin_chat(app, call.waiting, _native_chat(body, body.get("max_tokens"), effort))
    head = {"id": "chatcmpl-1", "created": int(time.time()), "model": turn.model, "system_fingerprint": "fp_ollama"}
    if body.get("stream"):
        usage = bool((body.get("stream_options") or {}).get("include_usage"))
        events = _chat_chunks(app, call, turn, head | {"object": "chat.completion.chunk"}, usage=usage)
        call.stream(events, "text/event-stream", lambda message: _data(openai_error(500, message)))
        return
    thinking, content = app.answer(turn, call.waiting)
    message = {"role": "assistant", "content": content} | ({"reasoning": thinking} if thinking else {})
    choice = {"index": 0, "message": message, "finish_reason": turn.reason}
    whole = head | {"object": "chat.completion", "choices": [choice], "usage": _usage(turn)}
    call.answer(whole, kind="application/json")


def _chat_chunks(app: App, call: Call, turn: Turn, head: dict[str, Any], *, usage: bool) -> Iterator[bytes]:
    role: dict[str, Any] = {"role": "assistant"}
    for kind, word in app.pieces(turn, call.waiting):
        said = {"content": word} if kind == "content" else {"content": "", "reasoning": word}
        yield _data(head | {"choices": [{"index": 0, "delta": role | said, "finish_reason": None}]})
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
    form = str(body.get("encoding_format") or "float").lower()
    if form not in {"float", "base64"}:
        given = body["encoding_format"]
        raise Refused(400, f"Invalid value for 'encoding_format' = {given}. Supported values: ['float', 'base64'].")
    if body.get("input") in (None, []):
        raise Refused(400, "invalid input")
    texts = [""] if body["input"] == "" else body["input"]
    answer = embedded(app, call, body | {"input": texts})
    data = []
    for index, vector in enumerate(answer["embeddings"]):
        packed = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode() if form == "base64" else vector
        data.append({"object": "embedding", "embedding": packed, "index": index})
    count = answer.get("prompt_eval_count", 0)
    usage = {"prompt_tokens": count, "total_tokens": count}
    call.answer({"object": "list", "data": data, "model": body.get("model"), "usage": usage}, kind="application/json")


def get_v1_models(app: App, call: Call) -> None:
    """List the models, as OpenAI's clients ask."""
    data = []
    for entry in listed(app):
        created = int(datetime.fromisoformat(entry["modified_at"]).timestamp())
        owner = parse_name(entry["model"]).namespace
        data.append({"id": entry["model"], "object": "model", "created": created, "owned_by": owner})
    # openai/openai.go, ToListCompletion: a slice that nothing was added to is written as null, not as an empty list.
    call.answer({"object": "list", "data": data or None}, kind="application/json")
