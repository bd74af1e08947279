"""What may be wrong with aliases: unknown names, circles, several models behind one name. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.lab.aliases import (
    ENGINE_STAGE,
    THINKING,
    THINKING_BUDGET,
    THINKS,
    TOO_LONG,
    Aliases,
    Engine,
    alias_loop,
    find_engines,
    flatten,
    for_too_long,
    kinds_of,
    thinking_words,
    written_names,
)
from provisioner.lab.resolved import ENGINE_PROTOCOL, ResolvedLab
from provisioner.lab.served import speakers_for
from provisioner.labfile.spec import UNKNOWN_MODEL
from provisioner.services import knowledge_of
from provisioner.services.base import Path, ResolvedService
from provisioner.services.gateway_routes import CHAT, EMBEDDING, RERANK
from provisioner.values.declared import Problem
from provisioner.values.refusals import did_you_mean

_DOES = {CHAT: "answers chats", EMBEDDING: "makes embeddings", RERANK: "orders documents"}
MOST_SHOWN = 12
MOST_ALIASES = 1000
"""Each is held against all others, and offered with all of its engines."""


def alias_names(lab: ResolvedLab) -> Iterator[Problem]:
    """A gateway offers something; an alias names engines, upstreams or other aliases, and never runs in a circle."""
    known = set(lab.upstreams)
    several: dict[str, tuple[str, ...]] = {}
    for engine in lab.engines:
        known |= {engine.address, *engine.offered_models}
        if len(engine.models) > 1:
            several[engine.address] = tuple(filter(None, engine.models))
    served = known | lab.models.keys() if UNKNOWN_MODEL in known else known
    for gateway, path, aliases in _alias_tables(lab):
        if not aliases and not speakers_for(lab, gateway):
            yield Problem(path, "there is nothing to offer", "Write at least one alias, such as fast: [NAME].")
        if len(aliases) > MOST_ALIASES:
            yield Problem(path, f"there are {len(aliases)} aliases", f"Write {MOST_ALIASES} at most.")
            continue
        for alias in aliases:
            yield from _own_name(aliases, alias, known, (*path, alias))
            yield from _kinds(lab, aliases, alias, (*path, alias))
            yield from _thinking(lab, aliases, alias, (*path, alias))
            for place, name in written_names(aliases, alias):
                where = (*path, alias, *place)
                if name in several:
                    hint = f"Write one of them: {', '.join(several[name])}"
                    yield Problem(where, f"{name} serves several models", hint)
                elif name not in served and name not in aliases:
                    yield _unknown(lab, name, known | set(aliases), where)


def _alias_tables(lab: ResolvedLab) -> Iterator[tuple[ResolvedService, Path, Mapping[str, Any]]]:
    for service in lab.services.values():
        for option, reference in service.page.references.items():
            if reference.kind == "aliases":
                yield service, (*service.path, option), service.written.get(option, {})


def _own_name(aliases: Aliases, alias: str, known: set[str], path: Path) -> Iterator[Problem]:
    loop = alias_loop(aliases, alias)
    if loop:
        yield Problem(path, f"the alias leads back to itself: {_drawn(loop)}")
    if alias in known:
        yield Problem(path, f'"{alias}" is the name of an engine already', "Choose another alias.")
    for place, name in written_names(aliases, alias):
        if name == alias and place[0] == TOO_LONG:
            yield Problem((*path, *place), "the alias names itself", "Name who reads more than its engines do.")


def _kinds(lab: ResolvedLab, aliases: Aliases, alias: str, path: Path) -> Iterator[Problem]:
    """All engines of an alias are asked for the same, and vectors of one model are never stored beside another's."""
    names = (*flatten(aliases, alias), *for_too_long(aliases, alias))
    kinds = kinds_of(lab.engines, names)
    if len(kinds) > 1:
        (one, first), (other, second), *_ = kinds.items()
        message = f"{first.address} {_DOES[one]}, and {second.address} {_DOES[other]}"
        yield Problem(path, message, "Give each of them an alias of its own.")
    elif EMBEDDING in kinds:
        models = dict.fromkeys(engine.model_for(name) for name in names for engine in find_engines(lab.engines, name))
        if len(models) > 1:
            message = f"vectors of {' and of '.join(models)} cannot be compared, so none may stand in for the other"
            yield Problem(path, message, "Give each of them an alias of its own.")


def _thinking(lab: ResolvedLab, aliases: Aliases, alias: str, path: Path) -> Iterator[Problem]:
    """Each engine of an alias that says whether it thinks can be told so; a budget is for thoughts alone."""
    written = aliases[alias]
    if not isinstance(written, Mapping) or not (written.get(THINKING) or written.get(THINKING_BUDGET)):
        return
    if written.get(THINKING_BUDGET) and written.get(THINKING) != THINKS:
        yield Problem((*path, THINKING_BUDGET), "a budget is for an alias that thinks", "Write thinking: on beside it.")
    for name in (*flatten(aliases, alias), *for_too_long(aliases, alias)):
        if name in lab.upstreams:
            message = f"how {name} is told whether to think is not known: it is none of this lab's engines"
            yield Problem((*path, THINKING), message, "Leave it out, or give the upstream an alias of its own.")
        for engine in find_engines(lab.engines, name):
            yield from _untold(written, engine, path)


def _untold(written: Mapping[str, Any], engine: Engine, path: Path) -> Iterator[Problem]:
    """An engine that cannot be told to think as the alias says, and which of the two words it does not know."""
    title, service = engine.service.page.title, engine.service
    kind = knowledge_of(service.role).answers(service)
    if kind != CHAT:
        yield Problem((*path, THINKING), f"{engine.address} {_DOES[kind]}, and thinks nothing", "Leave it out.")
    elif thinking_words({THINKING: written.get(THINKING)}, engine) is None:
        yield Problem((*path, THINKING), f"{engine.address} ({title}) cannot be told whether to think", "Leave it out.")
    elif thinking_words(written, engine) is None:
        message = f"{engine.address} ({title}) cannot be told when to end a thought"
        yield Problem((*path, THINKING_BUDGET), message, "Leave the budget out.")


def _drawn(way: tuple[str, ...]) -> str:
    shown = way if len(way) <= MOST_SHOWN else (*way[: MOST_SHOWN - 2], "…", way[-1])
    return " → ".join(shown)


def _unknown(lab: ResolvedLab, name: str, known: set[str], path: Path) -> Problem:
    if name in lab.models:
        example = lab.catalog.example(ENGINE_PROTOCOL, ENGINE_STAGE)
        return Problem(path, f'no service serves model "{name}"', f"Give it to an engine{example}.")
    hint = did_you_mean(name, sorted(known), always=True) or "There is none in this file."
    return Problem(path, f'no engine, upstream or alias "{name}" in this file', hint)
