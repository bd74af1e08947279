"""``limits`` of a role's page: each is checked and given to its option, and values are held against it. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from provisioner.catalog.types import Limit, Option

NUMBERS: Mapping[str, type | tuple[type, ...]] = {"int": int, "float": (int, float)}
TEXTS = ("str", "path")


def limited_options(
    options: Mapping[str, Option], limits: Mapping[str, Any], named_elsewhere: Collection[str] = ()
) -> dict[str, Option]:
    """The options with their limits; raise ``ValueError`` for a limit that cannot be.

    ``named_elsewhere``: the options whose values are names of something else in the file.
    """
    limited = dict(options)
    for name, page in limits.items():
        option = options.get(name)
        if option is None:
            raise ValueError(f"limits: {name!r} is no option of argument_specs.yml")
        if name in named_elsewhere or option.secret or option.choices:
            raise ValueError(f"limits: {name} is a reference, a secret or has choices, which are its limits already")
        limit = Limit(**page)
        _check(option, limit)
        limited[name] = replace(option, limit=limit)
        for _, message, hint in beyond_limit(limited[name], option.default):
            raise ValueError(f"limits: the default of {name}: {message}. {hint}".rstrip())
    return limited


def beyond_limit(option: Option, value: Any) -> Iterator[tuple[int | None, str, str]]:
    """What of a value is beyond the option's limit: its place in a list (else None), what is wrong, what to write."""
    if option.limit is None or value is None:
        return
    if option.type != "list":
        for message, hint in _beyond(option.limit, value):
            yield None, message, hint
        return
    for place, item in enumerate(value):
        for message, hint in _beyond(option.limit, item):
            yield place, message, hint


def _beyond(limit: Limit, value: Any) -> Iterator[tuple[str, str]]:
    if limit.min is not None and value < limit.min:
        yield f"{value} is too small", f"Write {limit.min} or more."
    if limit.max is not None and value > limit.max:
        yield f"{value} is too large", f"Write {limit.max} or less."
    if limit.pattern and not re.fullmatch(limit.pattern, value, re.ASCII):
        yield f'"{value}" must {limit.says}', ""


def _check(option: Option, limit: Limit) -> None:
    kind = (option.elements or "raw") if option.type == "list" else option.type
    ends = [end for end in (limit.min, limit.max) if end is not None]
    if kind in NUMBERS:
        _check_range(option.name, limit, ends, NUMBERS[kind])
    elif kind in TEXTS:
        _check_form(option.name, limit, ends)
    else:
        raise ValueError(f"limits: {option.name} is neither a number, a text nor a list of these")


def _check_range(name: str, limit: Limit, ends: list[float], kind: type | tuple[type, ...]) -> None:
    if limit.pattern or limit.says:
        raise ValueError(f"limits: {name} is a number, which has min and max, and no pattern")
    if not ends or any(isinstance(end, bool) or not isinstance(end, kind) for end in ends):
        raise ValueError(f"limits: min and max of {name} must be numbers of its type, and one of them has to be there")
    if sorted(ends) != ends:
        raise ValueError(f"limits: min of {name} is larger than its max")


def _check_form(name: str, limit: Limit, ends: list[float]) -> None:
    if ends:
        raise ValueError(f"limits: {name} is a text, which has a pattern, and no min or max")
    if not limit.pattern or not limit.says:
        raise ValueError(f"limits: {name} needs a pattern, and in says what completes 'it must ...'")
    try:
        re.compile(limit.pattern)
    except re.error as error:
        raise ValueError(f"limits: the pattern of {name} cannot be read: {error}") from error
