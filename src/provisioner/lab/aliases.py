"""Names by which engines are asked: aliases of a gateway, and members of a team. Pure.

An alias is a list of engine names, or a mapping that says more; aliases of aliases are replaced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from provisioner.labfile.spec import OLLAMA, Upstream, provider_of
from provisioner.services import knowledge_of
from provisioner.services.base import ResolvedService
from provisioner.services.gateway_routes import CHAT, RoutedAlias
from provisioner.values.address import Address

MEMBERS = "members"
"""The kind of a reference by which a service names engines that its members are asked of."""
MODEL = "model"
PROVIDERS: Mapping[str, str] = {
    "anthropic": "https://api.anthropic.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "mistral": "https://api.mistral.ai/v1",
    "groq": "https://api.groq.com/openai/v1",
    "deepseek": "https://api.deepseek.com/v1",
}
"""Where providers answer in OpenAI's words; of others the file has to say it."""
VERSION = "/v1"


@dataclass(frozen=True, slots=True)
class Engine:
    """One service of the file that answers completions, and the models that it serves."""

    service: ResolvedService
    models: tuple[str, ...]

    @property
    def address(self) -> Address:
        """``container/service``."""
        return self.service.address

    @property
    def offered_models(self) -> tuple[str, ...]:
        """The models by whose names it is found; none for a copy, which is asked by its address alone."""
        return () if self.service.is_copy else self.models

    def model_for(self, name: str) -> str:
        """Which of its models an alias' ``name`` means: the one of that name, else the first; empty without any."""
        return name if name in self.models else next(iter(self.models), "")


def find_engines(engines: Sequence[Engine], name: str) -> tuple[Engine, ...]:
    """The engines that ``name`` means: all that serve the model of that name but copies, or the one at that address."""
    return tuple(engine for engine in engines if name in {*engine.offered_models, engine.address})


def kinds_of(engines: Sequence[Engine], names: Iterable[str]) -> dict[str, Engine]:
    """What the engines behind these names are asked for, each kind with the first engine of it.

    Names of engines elsewhere say nothing: what those answer is not known.
    """
    kinds: dict[str, Engine] = {}
    for name in names:
        for engine in find_engines(engines, name):
            service = engine.service
            kinds.setdefault(knowledge_of(service.role).answers(service), engine)
    return kinds


def chat_aliases(engines: Sequence[Engine], aliases: Aliases) -> tuple[str, ...]:
    """The aliases that a chat may be asked of: all but those whose engines make embeddings or order documents."""
    offered = []
    for alias in aliases:
        kinds = kinds_of(engines, flatten(aliases, alias))
        if not kinds or CHAT in kinds:
            offered.append(alias)
    return tuple(offered)


Aliases = Mapping[str, Any]
"""What the file says of each: a list of names, or a mapping of ``engines`` and how they are asked."""
ENGINES = "engines"
ENGINE_STAGE = "engine"
"""The stage of services that compute answers; those of others ask them."""
TOO_LONG = "context_window_fallbacks"
LIMITS = ("timeout", "stream_timeout", "retries")
THINKING, THINKING_BUDGET, THINKS = "thinking", "thinking_budget", "on"


def engines_in(aliases: Aliases, alias: str) -> list[str]:
    """The names that the alias lists, as they are written."""
    written = aliases[alias]
    return list(written[ENGINES] if isinstance(written, Mapping) else written)


def written_names(aliases: Aliases, alias: str) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every name that the alias says, each with its place below it."""
    written = aliases[alias]
    if not isinstance(written, Mapping):
        yield from (((index,), name) for index, name in enumerate(written))
        return
    for word in (ENGINES, TOO_LONG):
        yield from (((word, index), name) for index, name in enumerate(written.get(word) or ()))


def alias_loop(aliases: Aliases, start: str) -> tuple[str, ...]:
    """The shortest way from ``start`` back to itself through aliases of aliases; empty when there is none."""
    came_from: dict[str, str] = {}
    waiting = deque([start])
    while waiting:
        alias = waiting.popleft()
        for name in engines_in(aliases, alias):
            if name == start:
                return (*_way(came_from, start, alias), start)
            if name in aliases and name not in came_from:
                came_from[name] = alias
                waiting.append(name)
    return ()


def _way(came_from: Mapping[str, str], start: str, end: str) -> list[str]:
    way = [end]
    while way[-1] != start:
        way.append(came_from[way[-1]])
    return way[::-1]


def flatten(aliases: Aliases, alias: str) -> tuple[str, ...]:
    """The engine names behind an alias, aliases of aliases replaced by theirs, each name once, in order."""
    return _flat(aliases, engines_in(aliases, alias))


def for_too_long(aliases: Aliases, alias: str) -> tuple[str, ...]:
    """The engines that the file names for what is too long for those of the alias; empty where it names none."""
    written = aliases[alias]
    return _flat(aliases, (written.get(TOO_LONG) or ()) if isinstance(written, Mapping) else ())


def thinking_words(written: Mapping[str, Any], engine: Engine) -> Mapping[str, Any] | None:
    """What a request of an alias says to an engine to have it think as the file wants; None where it cannot be told.

    ``written``: what the file says of the alias, where that is a mapping.
    """
    wanted = written.get(THINKING)
    if wanted is None:
        return {}
    service = engine.service
    knowledge = knowledge_of(service.role)
    words = knowledge.thinking(service, is_on=wanted == THINKS)
    budget = written.get(THINKING_BUDGET)
    besides = knowledge.thinking_budget(service, budget) if budget else {}
    if words is None or besides is None:
        return None
    return {**words, **besides}


def routed_aliases(aliases: Aliases, engines: Sequence[Engine] = ()) -> list[RoutedAlias]:
    """Every alias with its engines, sorted by name: an alias keeps its place when lines of the file change theirs."""
    return [_routed(aliases, alias, engines) for alias in sorted(aliases)]


def _routed(aliases: Aliases, alias: str, engines: Sequence[Engine]) -> RoutedAlias:
    written = aliases[alias]
    usual, rare = flatten(aliases, alias), for_too_long(aliases, alias)
    if not isinstance(written, Mapping):
        return RoutedAlias(alias, usual)
    limits = {word: written.get(word) for word in LIMITS}
    words = {}
    for name in (*usual, *rare):
        words[name] = [thinking_words(written, engine) or {} for engine in find_engines(engines, name)]
    thinking = written.get(THINKING)
    return RoutedAlias(alias, usual, **limits, context_window_fallbacks=rare, thinking=thinking, words=words)


def _flat(aliases: Aliases, listed: Any) -> tuple[str, ...]:
    names: dict[str, None] = {}
    opened: set[str] = set()  # an alias that was replaced once has no more names to give
    waiting = [*reversed(list(listed))]
    while waiting:
        name = waiting.pop()
        if name not in aliases:
            names[name] = None
        elif name not in opened:
            opened.add(name)
            waiting += reversed(engines_in(aliases, name))
    return tuple(names)


def written_members(service: ResolvedService, option: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each member that the option says, with where it stands, as ``ResolvedService.problem`` takes it."""
    written = service.written.get(option)
    if isinstance(written, Mapping):
        yield option, written
    elif isinstance(written, Sequence):
        yield from ((f"{option}.{place}", member) for place, member in enumerate(written))


def member_engines(engines: Sequence[Engine], name: str) -> tuple[Engine, ...]:
    """The engines that a member's ``name`` means: of all that answer, a team asks no other team."""
    return tuple(engine for engine in find_engines(engines, name) if engine.service.page.stage == ENGINE_STAGE)


def engines_of_members(service: ResolvedService, engines: Sequence[Engine]) -> Iterator[Engine]:
    """The engines that members of the service are asked of."""
    for option, reference in service.page.references.items():
        if reference.kind != MEMBERS:
            continue
        for _, member in written_members(service, option):
            yield from member_engines(engines, str(member.get(MODEL)))[:1]


def upstream_address(upstream: Upstream) -> str:
    """Where an upstream answers in OpenAI's words, up to the version; empty where nobody knows."""
    provider = provider_of(upstream.model)
    if upstream.base_url is None:
        return PROVIDERS.get(provider, "")
    address = str(upstream.base_url).rstrip("/")
    return address if urlsplit(address).path or provider not in OLLAMA else f"{address}{VERSION}"
