"""``managed_by``: what a role manages in one container, its page's templates filled in. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from provisioner.catalog import Upkeep
from provisioner.values.declared import Managed, Secret

_VARIABLE = re.compile(r"\{\{ (\w+) \}\}")


def managed_by(upkeep: Upkeep, variables: Mapping[str, Any]) -> Managed:
    """The names of what the role manages when it gets ``variables``, each once; none is made of a secret.

    A template may give several, one a line.

    Raises ``jinja2.UndefinedError`` or ``KeyError`` for a name made of what is no variable of the role, or a secret.
    """
    public = _public_of(variables)
    kinds = {}
    for field in fields(Managed):
        filled = (name for thing in upkeep.managed.get(field.name, ()) for name in _names(thing, public))
        lines = (line for names in filled for line in names.splitlines())
        kinds[field.name] = tuple(dict.fromkeys(line for line in lines if line))
    return Managed(**kinds)


def names_with(things: Iterable[str | Mapping[str, Any]], variables: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of such things as a page lists them, under the conditions that stand there."""
    public = _public_of(variables)
    found = list[str]()
    for thing in things:
        found += _names(thing, public)
    return tuple(found)


def _public_of(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are no secrets, without what is secret in them."""
    return {name: _public(value) for name, value in variables.items() if not isinstance(value, Secret)}


def _public(value: Any) -> Any:
    """The value without what is secret in it."""
    if isinstance(value, Mapping):
        return {key: _public(inner) for key, inner in value.items() if not isinstance(inner, Secret)}
    if isinstance(value, list | tuple):
        return [_public(inner) for inner in value if not isinstance(inner, Secret)]
    return value


def _names(thing: str | Mapping[str, Any], public: Mapping[str, Any]) -> list[str]:
    if isinstance(thing, str):
        return [_filled(thing, public)]
    if any(public[name] != value for name, value in thing.get("when", {}).items()):
        return []
    absent_with = thing.get("unless", {})
    if absent_with and all(public[name] == value for name, value in absent_with.items()):
        return []
    items: list[Mapping[str, Any]] = public[thing["each"]] if "each" in thing else [{}]
    return [_filled(thing["name"], {**public, **one}) for one in items]


def _filled(text: str, public: Mapping[str, Any]) -> str:
    # jinja2 is the dearest import of a run that has nothing to do, and most templates only name a variable.
    plain = _VARIABLE.sub(lambda found: str(public.get(found[1], found[0])), text)
    if "{" not in plain:
        return plain

    from jinja2 import StrictUndefined, Template

    rendered: str = Template(text, undefined=StrictUndefined).render(public)
    return rendered
