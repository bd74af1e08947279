"""Labs that say everything that a file can say: every key of every part, every option of every service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.case_files import read_cases

Place = tuple[str | int, ...]

LABS: dict[str, dict[str, Any]] = read_cases("maximal_labs")
"""By what they are for; keys of a file that exclude one another stand in different ones."""


def steps(value: Any, place: Place = ()) -> Iterator[Place]:
    """The place of everything below a value: keys of mappings and numbers of lists."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in pairs:
        yield (*place, step)
        yield from steps(inner, (*place, step))


def at(value: Any, place: Place) -> Any:
    """What stands at a place."""
    for step in place:
        value = value[step]
    return value


def with_value(value: Any, place: Place, new: Any) -> Any:
    """A copy with something else at a place."""
    if not place:
        return new
    first, rest = place[0], place[1:]
    if isinstance(value, dict):
        return {key: with_value(inner, rest, new) if key == first else inner for key, inner in value.items()}
    return [with_value(inner, rest, new) if number == first else inner for number, inner in enumerate(value)]


def with_key(value: Any, place: Place, new: str) -> Any:
    """A copy in which the last step of a place, a key, has another name."""
    *above, old = place
    mapping = at(value, tuple(above))
    return with_value(value, tuple(above), {new if key == old else key: inner for key, inner in mapping.items()})
