"""What a gateway passes on, and how LiteLLM does: aliases with the engines behind them, in words of ``model_list``."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CHAT, EMBEDDING, RERANK = "chat", "embedding", "rerank"
"""What an engine is asked for: an answer in words, a vector for each text, or scores of documents."""


@dataclass(frozen=True, slots=True)
class RoutedEngine:
    """A server that answers completions under ``name``, in this lab or elsewhere; several may have one name."""

    name: str
    model: str
    """Provider and model, such as ``openai/qwen``."""
    is_ours: bool
    """Whether it belongs to this lab, so that asking it costs nothing."""
    api_base: str = ""
    """Its base URL; empty for the provider's own."""
    api_key: Any = None
    """The key that it wants, a ``Secret``, or its text in a play; None where it wants none."""
    answers: str = CHAT
    """What it is asked for, as far as that is known: of an engine elsewhere nobody says it."""


@dataclass(frozen=True, slots=True)
class RoutedAlias:
    """An alias of a gateway with the names of its engines, the primary first; what is None is as for the gateway."""

    name: str
    engines: tuple[str, ...]
    timeout: float | None = None
    """Seconds that each engine has for a whole answer."""
    stream_timeout: float | None = None
    """Seconds that each engine has for each part of a streamed answer."""
    retries: int | None = None
    """How often each engine is asked again before the next one."""
    context_window_fallbacks: tuple[str, ...] = ()
    """The engines for what is too long for the alias' own; empty where the file names none."""
    thinking: str | None = None
    """``on`` or ``off``: whether its engines think before they answer."""
    words: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """What is said to each engine in the body of a request, by its name: one mapping for each server of that name."""


VARIABLE_MARK = "os.environ/"
"""LiteLLM puts the value of the variable, such as its own key, in the place of os.environ/NAME."""
NO_KEY = "none"
"""What stands for the key of an engine that wants none: the OpenAI client refuses to start without one."""
RERANK_PROVIDER = "hosted_vllm"
USUAL_FALLBACKS = 5
"""How many fallbacks LiteLLM tries for a request unless it is told another number."""
Deployment = dict[str, Any]
"""What an entry of LiteLLM's ``model_list`` says, in one mapping; the role's page describes each word."""


def routes_of(aliases: Sequence[RoutedAlias], engines: Sequence[RoutedEngine]) -> Mapping[str, Any]:
    """The role's option ``routes``, as its argument_specs describe it.

    An alias is one group of LiteLLM's: its deployments in the order of its engines. Behind the aliases' deployments
    stand those of the engines under their own names.
    """
    own = _own_deployments(engines)
    servers: dict[str, list[Deployment]] = defaultdict(list)
    for deployment in own:
        servers[deployment["model_name"]].append(deployment)
    deployments: list[Deployment] = []
    for number, alias in enumerate(aliases, start=1):
        deployments += _alias_deployments(number, alias, servers)
    return {
        "aliases": [alias.name for alias in aliases],
        "engines": [_engine_entry(number, engine) for number, engine in enumerate(engines, start=1)],
        "deployments": [*deployments, *own],
        "context_window_fallbacks": [_longer_entry(alias) for alias in aliases if _longer(alias)],
        "max_fallbacks": max([USUAL_FALLBACKS, *(len(alias.engines) + len(_longer(alias)) for alias in aliases)]),
        "asked": list(_asked(aliases, engines)),
        **_thinking(aliases),
    }


def _own_deployments(engines: Sequence[RoutedEngine]) -> list[Deployment]:
    """Each engine under its own name."""
    servers = Counter(engine.name for engine in engines)
    deployments = []
    for number, engine in enumerate(engines, start=1):
        deployment: Deployment = {"model_name": engine.name, "model": _asked_as(engine)}
        if engine.api_base:
            deployment["api_base"] = engine.api_base
        if engine.api_key is not None:
            deployment["api_key"] = f"{VARIABLE_MARK}{_key_variable(number)}"
        elif _needs_some_key(engine):
            deployment["api_key"] = NO_KEY
        if servers[engine.name] == 1:  # nothing stands beside it: it is asked whatever it answered a moment ago
            deployment["cooldown_time"] = 0
        if engine.answers != CHAT:
            deployment["mode"] = engine.answers
        deployments.append(deployment)
    return deployments


def _asked_as(engine: RoutedEngine) -> str:
    """Provider and model. LiteLLM has no order of documents for ``openai``, and one for ``hosted_vllm``."""
    provider, _, model = engine.model.partition("/")
    is_reranker = engine.answers == RERANK and provider == "openai"
    return f"{RERANK_PROVIDER}/{model}" if is_reranker else engine.model


def _key_variable(number: int) -> str:
    return f"ENGINE_{number}_KEY"


def _needs_some_key(engine: RoutedEngine) -> bool:
    """Whether LiteLLM asks such an engine with the OpenAI client."""
    is_elsewhere = bool(engine.api_base) and not engine.model.startswith("ollama")
    return engine.model.startswith("openai/") or is_elsewhere


def _alias_deployments(
    number: int, alias: RoutedAlias, servers: Mapping[str, Sequence[Deployment]]
) -> Iterator[Deployment]:
    """The engines of an alias; each is left alone after failures as long as another stands behind it."""
    limits = _time_limits(alias)
    if alias.retries is not None:
        limits["num_retries"] = alias.retries
    for place, name in enumerate(alias.engines, start=1):
        words = dict(enumerate(alias.words.get(name, ()), start=1))
        for index, server in enumerate(servers[name], start=1):
            identity = f"{number}.{place}.{index}/{re.sub('[^A-Za-z0-9._-]', '_', name)}"
            deployment = {**server, **limits, "model_name": alias.name, "order": place, "id": identity}
            if words.get(index):
                deployment["extra_body"] = dict(words[index])
            if place < len(alias.engines):
                deployment.pop("cooldown_time", None)
                deployment["left_alone"] = True
            yield deployment


def _time_limits(alias: RoutedAlias) -> dict[str, float]:
    limits = {"timeout": alias.timeout, "stream_timeout": alias.stream_timeout}
    return {word: float(seconds) for word, seconds in limits.items() if seconds is not None}


def _longer(alias: RoutedAlias) -> tuple[str, ...]:
    """Who answers what is too long: LiteLLM fails such a request of an alias for which nobody is named."""
    return alias.context_window_fallbacks or alias.engines[1:]


def _longer_entry(alias: RoutedAlias) -> dict[str, Any]:
    engines: list[dict[str, Any]] = []
    for name in _longer(alias):
        words = next(iter(alias.words.get(name, ())), {})  # servers of one name serve one model
        engines.append({"model": name, "extra_body": dict(words)} if words else {"model": name})
    return {"alias": alias.name, "engines": engines, **_time_limits(alias)}


def _engine_entry(number: int, engine: RoutedEngine) -> dict[str, Any]:
    entry = {"name": engine.name, "local": engine.is_ours}
    if engine.api_key is None:
        return entry
    return {**entry, "key_variable": _key_variable(number), "api_key": engine.api_key}


def _asked(aliases: Sequence[RoutedAlias], engines: Sequence[RoutedEngine]) -> Iterator[str]:
    """What the proof asks: each alias whose primary is ours, and our engines that are no primary."""
    ours = dict.fromkeys(engine.name for engine in engines if engine.is_ours)
    primaries = {name for alias in aliases for name in alias.engines[:1]}
    for alias in aliases:
        if set(alias.engines[:1]) & set(ours):
            yield alias.name
    yield from (name for name in ours if name not in primaries)


def _thinking(aliases: Sequence[RoutedAlias]) -> dict[str, Any]:
    """Which aliases are to think and which not; nothing where none says it."""
    said = {alias.name: alias.thinking for alias in aliases if alias.thinking}
    return {"thinking": said} if said else {}
