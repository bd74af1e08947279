"""Answers in the making: fixed words in the place of a model's, and vectors."""

from __future__ import annotations

import hashlib
import math
import re
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.doubles.ollama.server.errors import Refused
from tests.doubles.ollama.server.models import Model, Models
from tests.doubles.ollama.server.names import asked_name
from tests.doubles.ollama.server.scheduler import Runner, Scheduler, Waiting
from tests.doubles.ollama.server.settings import Settings, keep_alive_seconds
from tests.doubles.ollama.server.store import Store


@dataclass
class Turn:
    """An answer in the making: its pieces first, its numbers when they are over."""

    model: str
    words: list[str] = field(default_factory=list)
    reason: str = "stop"
    prompt_tokens: int = 0
    runner: Runner | None = None
    started: float = field(default_factory=time.monotonic)
    loaded: float = 0.0
    spoken: int = 0

    @property
    def empty(self) -> bool:
        """Whether the request only loaded or unloaded the model."""
        return self.runner is None

    def metrics(self) -> dict[str, int]:
        """The numbers of the last event."""
        if self.empty:
            return {}
        total = int((time.monotonic() - self.started) * 1e9)
        load = int((self.loaded - self.started) * 1e9)
        numbers = {
            "total_duration": total,
            "load_duration": load,
            "prompt_eval_count": self.prompt_tokens,
            "prompt_eval_duration": 1_000_000,
            "eval_count": self.spoken,
            "eval_duration": max(total - load, 1),
        }
        return {name: number for name, number in numbers.items() if number}


class App:
    """What every request shares."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = Store(settings.models)
        self.models = Models(self.store)
        self.scheduler = Scheduler(settings)

    def model(self, raw: str, unnamed: Refused, unknown: str) -> Model:
        """The model that a request names."""
        name = self.store.existing(asked_name(raw, self.settings, unnamed))
        model = self.models.get(name)
        if model is None:
            raise Refused(404, unknown)
        return model

    def pieces(self, turn: Turn, waiting: Waiting) -> Iterator[str]:
        """The words of an answer at their times."""
        if turn.runner is None:
            return
        with self.scheduler.slot(turn.runner, waiting):
            for word in turn.words:
                waiting.sleep(self.settings.token_s)
                waiting.check()
                turn.spoken += 1
                yield word

    def answer(self, turn: Turn, waiting: Waiting) -> str:
        """All of an answer."""
        return "".join(self.pieces(turn, waiting))


def answer_words(model: Model, prompt: str, length: int) -> list[str]:
    """The words that are always said to this prompt by this model."""
    heard = " ".join(prompt.split()[:64])
    words = re.findall(r"\s*\S+", f"{model.name.model} heard: {heard}.")
    return words + [f" {number}" for number in range(1, length - len(words) + 1)]


def say(app: App, waiting: Waiting, body: dict[str, Any], model: Model, prompt: str) -> Turn:
    """Load the model and decide what it says."""
    options = model.options | (body.get("options") or {})
    turn = Turn(str(body["model"]))
    context = options.get("num_ctx")
    keep = keep_alive_seconds(body.get("keep_alive"))
    turn.runner = app.scheduler.runner(model, int(context) if context else None, keep, waiting)
    turn.loaded = time.monotonic()
    turn.prompt_tokens = max(len(prompt.split()), 1)
    turn.words = answer_words(model, prompt, app.settings.words)
    limit = options.get("num_predict", -1)
    if isinstance(limit, int) and 0 <= limit < len(turn.words):
        turn.words = turn.words[:limit]
        turn.reason = "length"
    return turn


def begin_chat(app: App, waiting: Waiting, body: dict[str, Any]) -> Turn:
    """Check a chat as upstream does, and load its model (server/routes.go, ChatHandler)."""
    asked = body["model"] = str(body.get("model") or "")
    model = app.model(asked, Refused(400, "model is required"), f"model '{asked}' not found")
    messages = body.get("messages") or []
    if not messages and keep_alive_seconds(body.get("keep_alive")) == 0:
        app.scheduler.expire(model)
        return Turn(asked, reason="unload")
    if "completion" not in model.capabilities():
        raise Refused(400, f'"{asked}" does not support chat')
    if body.get("tools"):
        raise Refused(501, "the stand-in calls no tools")
    if messages:
        return say(app, waiting, body, model, _prompt(messages))
    say(app, waiting, body, model, "")
    return Turn(asked, reason="load")


def _prompt(messages: list[Any]) -> str:
    texts = [str(message.get("content") or "") for message in messages if isinstance(message, dict)]
    if not texts:
        raise Refused(400, "json: cannot unmarshal messages into Go struct field ChatRequest.messages")
    return texts[-1]


def load(app: App, waiting: Waiting, body: dict[str, Any]) -> Turn:
    """Load or unload a model, as a completion of no text does (server/routes.go, GenerateHandler)."""
    asked = body["model"] = str(body.get("model") or "")
    unknown = f"model '{asked}' not found"
    model = app.model(asked, Refused(404, unknown), unknown)
    if body.get("prompt"):
        raise Refused(501, "the stand-in completes no text")
    if keep_alive_seconds(body.get("keep_alive")) == 0:
        app.scheduler.expire(model)
        return Turn(asked, reason="unload")
    if "completion" not in model.capabilities():
        raise Refused(400, f'"{asked}" does not support generate')
    say(app, waiting, body, model, "")
    return Turn(asked, reason="load")


def embed_texts(app: App, waiting: Waiting, body: dict[str, Any], texts: list[str], model: Model) -> list[list[float]]:
    """A vector for each text, of length one, always the same for the same text."""
    keep = keep_alive_seconds(body.get("keep_alive"))
    runner = app.scheduler.runner(model, None, keep, waiting)
    width = min(int(model.gguf.own("embedding_length") or 64), 8192)
    with app.scheduler.slot(runner, waiting):
        return [_vector(text, width) for text in texts]


def _vector(text: str, width: int) -> list[float]:
    content = hashlib.shake_256(text.encode()).digest(2 * width)
    numbers = [(value - 32768) / 32768 for value in struct.unpack(f"<{width}H", content)]
    length = math.sqrt(sum(number * number for number in numbers)) or 1.0
    return [number / length for number in numbers]
