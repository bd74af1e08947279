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
    options: Mapping[str, Option],
    limits: Mapping[str, Any],
    named_elsewhere: Collection[str] = (),
    *,
    checked: bool = False,
) -> dict[str, Option]:
    """The options with their limits; raise ``ValueError`` for a limit that cannot be, unless that was ``checked``.

    ``named_elsewhere``: the options whose values are names of something else in the file.
    """
    limited = dict(options)
    for name, page in limits.items():
        if name not in options:
            raise ValueError(f"limits: {name!r} is no option of argument_specs.yml")
        limited[name] = replace(options[name], limit=Limit(**page))
        if not checked:
            _check(limited[name], is_named_elsewhere=name in named_elsewhere)
    return limited


def beyond_limit(option: Option, value: Any) -> Iterator[tuple[int | None, str, str]]:
    """What of a value is beyond the option's limit: its place in a list (else None), what is wrong, what to write."""
    if option.limit is None or value is None:
        return
    places = enumerate(value) if option.type == "list" else [(None, value)]
    for place, item in places:
        for message, hint in _beyond(option.limit, item):
            yield place, message, hint


def _beyond(limit: Limit, value: Any) -> Iterator[tuple[str, str]]:
    if limit.min is not None and value < limit.min:
        yield f"{value} is too small", f"Write {limit.min} or more."
    if limit.max is not None and value > limit.max:
        yield f"{value} is too large", f"Write {limit.max} or less."
    if limit.pattern and not re.fullmatch(limit.pattern, value, re.ASCII):
        yield f'"{value}" must {limit.says}', ""


def _check(option: Option, *, is_named_elsewhere: bool) -> None:
    """Refuse a limit that is not of the option's kind: a range for numbers, a pattern for texts."""
    limit = option.limit or Limit()
    if option.secret or option.choices or is_named_elsewhere:
        raise ValueError(f"limits: {option.name} is a reference, a secret or has choices, which are its limits already")
    kind = (option.elements or "raw") if option.type == "list" else option.type
    if kind in TEXTS:
        _check_form(option.name, limit)
    elif kind in NUMBERS:
        _check_range(option.name, limit, NUMBERS[kind])
    else:
        raise ValueError(f"limits: {option.name} is neither a number, a text nor a list of these")
    _check_default(option)


def _check_range(name: str, limit: Limit, kind: type | tuple[type, ...]) -> None:
    if limit.pattern or limit.says:
        raise ValueError(f"limits: {name} is a number, which has min and max, and no pattern")
    ends = _ends(limit)
    if not ends:
        raise ValueError(f"limits: {name} needs min or max")
    for end in ends:
        is_number = isinstance(end, kind) and not isinstance(end, bool)
        if not is_number:
            raise ValueError(f"limits: min and max of {name} must be numbers of its type")
    if ends[0] > ends[-1]:
        raise ValueError(f"limits: min of {name} is larger than its max")


def _check_form(name: str, limit: Limit) -> None:
    if _ends(limit):
        raise ValueError(f"limits: {name} is a text, which has a pattern, and no min or max")
    if not limit.pattern or not limit.says:
        raise ValueError(f"limits: {name} needs a pattern, and in says what completes 'it must ...'")
    try:
        re.compile(limit.pattern)
    except re.error as error:
        raise ValueError(f"limits: the pattern of {name} cannot be read: {error}") from error


def _check_default(option: Option) -> None:
    for _, message, hint in beyond_limit(option, option.default):
        words = f"{message}. {hint}".rstrip()
        raise ValueError(f"limits: the default of {option.name}: {words}")


def _ends(limit: Limit) -> list[float]:
    """Those ends of the range that are written, the least first."""
    return [end for end in (limit.min, limit.max) if end is not None]
