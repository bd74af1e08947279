"""What a gateway's options say against the rest of the file: names of engines, hosts, numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.catalog import Catalog
from provisioner.lab.aliases import TOO_LONG, Aliases, alias_loop, written_names
from provisioner.lab.engines import engines_of, services_of
from provisioner.lab.speech import speakers
from provisioner.spec import Spec
from provisioner.spec.suggestion import did_you_mean
from provisioner.state import Problem, Secret

MOST_SHOWN = 12
MOST_ALIASES = 1000
"""Each is held against all others, and offered with all of its engines."""
VARIABLE_MARK = "os.environ/"
"""LiteLLM puts the value of the variable, such as its own key, in the place of os.environ/NAME."""
TOLD_STAGES = ("engine", "gateway")

Path = tuple[str | int, ...]


def alias_names(spec: Spec, catalog: Catalog) -> Iterator[Problem]:
    """A gateway offers something; an alias names engines, upstreams or other aliases, and never runs in a circle."""
    engines = engines_of(spec, catalog)
    known = {name for engine in engines for name in (*engine.models, engine.address)} | set(spec.upstreams)
    several = {engine.address: engine.models for engine in engines if len(engine.models) > 1}
    for path, aliases in _alias_tables(spec, catalog):
        if not aliases and not speakers(spec, catalog, str(path[1])):
            yield Problem(path, "there is nothing to offer", "Write at least one alias, such as fast: [NAME].")
        if len(aliases) > MOST_ALIASES:
            yield Problem(path, f"there are {len(aliases)} aliases", f"Write {MOST_ALIASES} at most.")
            continue
        for alias in aliases:
            yield from _own_name(aliases, alias, known, (*path, alias))
            for place, name in written_names(aliases, alias):
                if name in several:
                    hint = f"Write one of them: {', '.join(several[name])}"
                    yield Problem((*path, alias, *place), f"{name} serves several models", hint)
                if name not in known and name not in aliases:
                    yield _unknown(spec, name, known | set(aliases), (*path, alias, *place))


def words_of_gateways(spec: Spec, catalog: Catalog) -> Iterator[Problem]:
    """Nothing that a gateway is told, keys included, holds what LiteLLM takes for the value of a variable."""
    told: list[tuple[Path, Any]] = [(("upstreams", name), dict(upstream)) for name, upstream in spec.upstreams.items()]
    for container, service, page in services_of(spec, catalog):
        if page.stage in TOLD_STAGES:
            told.append((("containers", container, "services", service.role), service.options))
    for path, value in told:
        for place in _places_of_variables(value):
            yield Problem((*path, *place), f'"{VARIABLE_MARK}" is in it', "LiteLLM takes that for a variable.")


def _places_of_variables(value: Any, place: Path = ()) -> Iterator[Path]:
    text = value.reveal() if isinstance(value, Secret) and value.is_known else value
    if isinstance(text, str) and VARIABLE_MARK in text:
        yield place
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in pairs:
        yield from _places_of_variables(inner, (*place, step))


def _own_name(aliases: Aliases, alias: str, known: set[str], path: Path) -> Iterator[Problem]:
    loop = alias_loop(aliases, alias)
    if loop:
        yield Problem(path, f"the alias leads back to itself: {_drawn(loop)}")
    if alias in known:
        yield Problem(path, f'"{alias}" is the name of an engine already', "Choose another alias.")
    for place, name in written_names(aliases, alias):
        if name == alias and place[0] == TOO_LONG:
            yield Problem((*path, *place), "the alias names itself", "Name who reads more than its engines do.")


def _drawn(way: tuple[str, ...]) -> str:
    shown = way if len(way) <= MOST_SHOWN else (*way[: MOST_SHOWN - 2], "…", way[-1])
    return " → ".join(shown)


def _unknown(spec: Spec, name: str, known: set[str], path: Path) -> Problem:
    if name in spec.models:
        return Problem(path, f'no service serves model "{name}"', "Give it to an engine, such as llama_cpp.")
    hint = did_you_mean(name, sorted(known), always=True) or "There is none in this file."
    return Problem(path, f'no engine, upstream or alias "{name}" in this file', hint)


def _alias_tables(spec: Spec, catalog: Catalog) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    for container, service, page in services_of(spec, catalog):
        for option, reference in page.references.items():
            if reference.kind == "aliases":
                yield ("containers", container, "services", service.role, option), service.options.get(option, {})
