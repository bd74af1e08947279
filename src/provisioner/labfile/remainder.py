"""The rest of a file's values without the parts that their form refuses: it is judged as well, in the same run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from typing import Any

from provisioner.catalog import Catalog
from provisioner.labfile.parsing import parse_spec
from provisioner.labfile.spec import UNKNOWN_MODEL, Spec
from provisioner.values.declared import Problem
from provisioner.values.refusals import KeyPath
from provisioner.values.state import Secret

ROUNDS = 4
"""An option that is taken out may be one that its service needs, and that one all that its container has."""

_STAND_INS: Mapping[tuple[str, int], Any] = {
    ("model", 5): UNKNOWN_MODEL,
    ("models", 5): [UNKNOWN_MODEL],
    ("models", 6): UNKNOWN_MODEL,
}
"""By the kind of an option and the length of a path: to the option, or to one item of it."""


@dataclass(frozen=True, slots=True)
class Remainder:
    """A valid file, and the places of what was taken out of the one that somebody wrote.

    ``unknown``: the places of secrets and models that were missing or no such thing: something stands there, and nobody
    knows what it is.
    """

    spec: Spec
    removed: frozenset[KeyPath]
    unknown: frozenset[KeyPath] = frozenset()

    def is_about(self, problem: Problem) -> bool:
        """Return whether a problem of what is left may come of what was taken out, and not of what was written."""
        said = f"{problem.message} {problem.hint}"
        if problem.path in self.unknown or f'"{UNKNOWN_MODEL}"' in said:
            return True
        for path in self.removed:
            shared = min(len(path), len(problem.path))
            if path[:shared] == problem.path[:shared]:
                return True
            if any(word in said for word in _called(path)):
                return True
        return False


def _called(path: KeyPath) -> tuple[str, ...]:
    """Return what other places call a part that was taken out as a whole: a model, a container, a service of one."""
    match list(map(str, path)):
        case [_, name]:
            return (f'"{name}"', f"{name}/")
        case [_, container, "services", role]:
            return (f"{container}/{role}",)
    return ()


def remainder(data: Mapping[str, Any], problems: Iterable[Problem], catalog: Catalog) -> Remainder | None:
    """Return what is left of the values without the places of the problems; None where that is no file either.

    A service without a secret or a model that it needs stays, with one that nobody knows: its other options are judged
    as well.
    """
    left: dict[str, Any] = deepcopy(dict(data))
    removed: set[KeyPath] = set()
    unknown: set[KeyPath] = set()
    for _ in range(ROUNDS):
        before = len(removed) + len(unknown)
        for problem in problems:
            if problem.path not in unknown and _is_filled_in(left, problem.path, catalog):
                unknown.add(problem.path)
                continue
            # What was taken out and is needed takes what needs it along.
            path = problem.path[:-1] if problem.path in removed else problem.path
            if not any(path[: len(one)] == one for one in removed):
                removed |= {_taken_out(left, path)} - {()}
        if len(removed) + len(unknown) == before:
            return None
        parsed = parse_spec(left, catalog)
        if parsed.spec is not None:
            return Remainder(parsed.spec, frozenset(removed), frozenset(unknown))
        problems = parsed.problems
    return None


def _is_filled_in(data: dict[str, Any], path: KeyPath, catalog: Catalog) -> bool:
    """Put what nobody knows where a service lacks or miswrites a secret or a model; return whether that was done."""
    match list(path):
        case ["containers", _, "services", role, option, *_] if role in catalog.services:
            page, name = catalog.services[str(role)], str(option)
            kind = page.references[name].kind if name in page.references else ""
            stand_in = _STAND_INS.get((kind, len(path)))
            if name in page.options and page.options[name].secret:
                stand_in = Secret(name, None)
            if stand_in is None:
                return False
            left: Any = data
            try:
                holder = reduce(getitem, path[:-1], left)
                holder[path[-1]] = stand_in
            except (KeyError, TypeError):  # of that service nothing is written, or nothing is left
                return False
            return True
    return False


def _taken_out(data: dict[str, Any], path: KeyPath) -> KeyPath:
    """Take out what lies at a path, or the mapping that lacks it; return where that was, nothing where it is all."""
    at: Any = data
    holders: list[dict[str, Any]] = []
    for step in path:
        if not isinstance(at, dict) or step not in at:
            break
        holders.append(at)
        at = at[str(step)]
    # Of a list all goes: what stands behind one item would be at another place.
    depth = len(holders)
    if depth == 0:
        return ()
    del holders[depth - 1][str(path[depth - 1])]
    return path[:depth]
