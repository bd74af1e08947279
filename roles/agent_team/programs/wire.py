"""OpenAI's chat completions as JSON: what a client may ask, and what it gets. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MOST_MESSAGES = 1000
ROLES = ("system", "developer", "user", "assistant")
DONE = b"data: [DONE]\n\n"
WAITING = b": the team is at work\n\n"
"""A comment, which clients skip: a stream on which nothing comes is ended by what stands between."""
STOP, LENGTH = "stop", "length"


class RefusedError(Exception):
    """A question that the team does not take; the text says what to do."""


@dataclass(frozen=True)
class Question:
    """What a client asks of the team."""

    messages: tuple[tuple[str, str], ...]
    """(user or assistant, text), the last one the user's."""
    system: str = ""
    """What the client says to the coordinator beside its own instructions."""
    stream: bool = False
    tells_usage: bool = False
    max_tokens: int | None = None
    """How many tokens each answer of the coordinator may have."""
    sampling: Mapping[str, float] = field(default_factory=dict)


def read_question(body: bytes, name: str) -> Question:
    """The question in a request's body to the team of that name; raise ``RefusedError`` where it is none."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RefusedError("The body is no JSON.") from error
    if not isinstance(asked, dict):
        raise RefusedError("The body must be a JSON object.")
    if asked.get("model") != name:
        raise RefusedError(f'There is no such model here: write "model": "{name}".')
    if asked.get("tools") or asked.get("functions"):
        raise RefusedError("A team takes no tools of a client: its members are its tools. Leave `tools` out.")
    if asked.get("n") not in (None, 1):
        raise RefusedError("A team gives one answer: leave `n` out.")
    messages = _messages(asked.get("messages"))
    talk = tuple(message for message in messages if message[0] in ("user", "assistant"))
    if not talk or talk[-1][0] != "user":
        raise RefusedError("The last of `messages` must be the user's.")
    options = asked.get("stream_options")
    return Question(
        messages=talk,
        system="\n\n".join(text for role, text in messages if role not in ("user", "assistant")),
        stream=asked.get("stream") is True,
        tells_usage=isinstance(options, dict) and options.get("include_usage") is True,
        max_tokens=_max_tokens(asked),
        sampling=_sampling(asked),
    )


def _messages(listed: Any) -> list[tuple[str, str]]:
    if not isinstance(listed, list) or not 0 < len(listed) <= MOST_MESSAGES:
        raise RefusedError(f"`messages` must be a list of at most {MOST_MESSAGES} messages, and not be empty.")
    messages = []
    for message in listed:
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise RefusedError(f"Each of `messages` must have a `role`, one of {', '.join(ROLES)}.")
        messages.append((message["role"], _text(message.get("content"))))
    return messages


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RefusedError("The `content` of a message must be a text or a list of parts.")
    parts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise RefusedError("A team reads texts only: leave images, sound and files out of `content`.")
        parts.append(part["text"])
    return "\n".join(parts)


def _max_tokens(asked: Mapping[str, Any]) -> int | None:
    for word in ("max_completion_tokens", "max_tokens"):
        value = asked.get(word)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise RefusedError(f"`{word}` must be a whole number, 1 or more.")
        return value
    return None


def _sampling(asked: Mapping[str, Any]) -> dict[str, float]:
    found = {}
    for word, most in (("temperature", 2), ("top_p", 1)):
        value = asked.get(word)
        if value is None:
            continue
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= most:
            raise RefusedError(f"`{word}` must be a number from 0 to {most}.")
        found[word] = float(value)
    return found


@dataclass(frozen=True)
class Answer:
    """The head that all parts of one answer share."""

    id: str
    created: int
    model: str

    def whole(self, content: str, thoughts: str, reason: str, usage: Mapping[str, int]) -> dict[str, Any]:
        """The answer in one piece."""
        message = {"role": "assistant", "content": content}
        if thoughts:
            message["reasoning_content"] = thoughts
        choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
        return {**self._head("chat.completion"), "choices": [choice], "usage": dict(usage)}

    def part(self, delta: Mapping[str, str], reason: str | None = None) -> bytes:
        """One event of a stream."""
        choice = {"index": 0, "delta": dict(delta), "finish_reason": reason, "logprobs": None}
        return event({**self._head("chat.completion.chunk"), "choices": [choice]})

    def usage(self, usage: Mapping[str, int]) -> bytes:
        """The event that tells the tokens."""
        return event({**self._head("chat.completion.chunk"), "choices": [], "usage": dict(usage)})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def event(value: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def usage_of(read: int, written: int) -> dict[str, int]:
    """The tokens in OpenAI's words."""
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def error(kind: str, code: str, message: str) -> dict[str, Any]:
    """An error in OpenAI's words."""
    return {"error": {"message": message, "type": kind, "code": code, "param": None}}


def models(name: str, created: int) -> dict[str, Any]:
    """The list of models, which is the team."""
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "created": created, "owned_by": "provisioner"}],
    }


def masked(text: str, keys: Sequence[str]) -> str:
    """``text`` without the keys."""
    for key in sorted(keys, key=len, reverse=True):  # a key may begin as another one does
        if key:
            text = text.replace(key, "********")
    return text
