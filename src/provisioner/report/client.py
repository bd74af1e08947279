"""What a program that uses the lab's gateway puts into its own configuration; the key is named, never shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

CLIENTS = ("opencode", "openai", "openwebui")
_OUTPUT_TOKENS = 8192
_OUTPUT_SHARE = 4


@dataclass(frozen=True, slots=True)
class Served:
    """What a model takes: tokens of one request with its answer (None when nobody here knows), and perhaps images."""

    context: int | None = None
    vision: bool = False

    @property
    def output(self) -> int | None:
        """How many of the tokens a client should leave for the answer."""
        return min(self.context // _OUTPUT_SHARE, _OUTPUT_TOKENS) if self.context else None


@dataclass(frozen=True, slots=True)
class Speech:
    """Where a lab speaks: the OpenAI URL for that, the variable that holds its key ("" for none), model and voice.

    ``voice`` is "" where nobody knows one.
    """

    url: str
    key_variable: str
    model: str
    voice: str


@dataclass(frozen=True, slots=True)
class Gateway:
    """Where a lab answers: its OpenAI URL, the variable that holds its key ("" for none), its models by their names.

    A lab that only speaks answers where it speaks, and has no models.
    """

    lab: str
    url: str
    key_variable: str
    models: Mapping[str, Served] = field(default_factory=dict)
    speech: Speech | None = None


def client_text(client: str, gateway: Gateway) -> str:
    """The snippet for one of ``CLIENTS``."""
    return _WRITERS[client](gateway)


def _opencode(gateway: Gateway) -> str:
    """An OpenAI-compatible provider (opencode.ai/docs/providers); opencode reads ``{env:NAME}`` when it starts."""
    options = {"baseURL": gateway.url}
    if gateway.key_variable:
        options["apiKey"] = f"{{env:{gateway.key_variable}}}"
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": gateway.lab,
        "options": options,
        "models": {name: _opencode_model(name, served) for name, served in gateway.models.items()},
    }
    return json.dumps({"$schema": "https://opencode.ai/config.json", "provider": {gateway.lab: provider}}, indent=2)


def _opencode_model(name: str, served: Served) -> dict[str, Any]:
    """As models.dev describes a model: without ``modalities`` opencode leaves images out of what it sends."""
    model: dict[str, Any] = {"name": name}
    if served.context is not None:
        model["limit"] = {"context": served.context, "output": served.output}
    if served.vision:
        model |= {"attachment": True, "modalities": {"input": ["text", "image"], "output": ["text"]}}
    return model


def _openai(gateway: Gateway) -> str:
    """Two variables, and as comments what answers there."""
    lines = []
    if gateway.models or not gateway.speech:
        lines += _model_comments(gateway.models)
    if gateway.speech:
        lines.append(_speech_comment(gateway.speech, gateway.url))
    key = f'"${gateway.key_variable}"' if gateway.key_variable else "none"
    return "\n".join([*lines, f"export OPENAI_BASE_URL={gateway.url}", f"export OPENAI_API_KEY={key}"])


def _model_comments(models: Mapping[str, Served]) -> list[str]:
    lines = [f"# models: {', '.join(models) or 'ask /v1/models'}"]
    return lines + [f"# {name}: {_in_words(served)}" for name, served in models.items()]


def _speech_comment(speech: Speech, url: str) -> str:
    """What speaks; its address only where that is not ``url``, which stands below anyway."""
    comment = f"# speech: model {speech.model}"
    if speech.voice:
        comment += f", voice {speech.voice}"
    if speech.url != url:
        comment += f", at {speech.url}"
    return comment


def _in_words(served: Served) -> str:
    taken = "text and images" if served.vision else "text"
    if served.context is None:
        return taken
    return f"{taken}, {served.context} tokens of context, {served.output} of them for the answer"


def _openwebui(gateway: Gateway) -> str:
    """Without ENABLE_PERSISTENT_CONFIG=False its database wins over these variables after the first start."""
    speech = gateway.speech
    lines = []
    only_speaks = speech is not None and not gateway.models and speech.url == gateway.url
    if not only_speaks:
        lines += [
            "ENABLE_OPENAI_API=True",
            f"OPENAI_API_BASE_URLS={gateway.url}",
            f"OPENAI_API_KEYS={_webui_key(gateway.key_variable)}",
        ]
    if speech is not None:
        lines += _webui_speech(speech)
    return "\n".join([*lines, "ENABLE_PERSISTENT_CONFIG=False"])


def _webui_speech(speech: Speech) -> list[str]:
    """It asks for each sentence alone, so that the first is heard early whatever the server does."""
    return [
        "AUDIO_TTS_ENGINE=openai",
        f"AUDIO_TTS_OPENAI_API_BASE_URL={speech.url}",
        f"AUDIO_TTS_OPENAI_API_KEY={_webui_key(speech.key_variable)}",
        f"AUDIO_TTS_MODEL={speech.model}",
        *([f"AUDIO_TTS_VOICE={speech.voice}"] if speech.voice else []),
        "AUDIO_TTS_SPLIT_ON=punctuation",
    ]


def _webui_key(variable: str) -> str:
    return f"${{{variable}}}" if variable else "none"


_WRITERS: Mapping[str, Callable[[Gateway], str]] = {"opencode": _opencode, "openai": _openai, "openwebui": _openwebui}
