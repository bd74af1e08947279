"""The ``--json`` stream: one object a line, ``type`` first, no secret ever."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from provisioner import __version__
from provisioner.values.declared import MASK, Secret

FORMAT = "1.0"


def version_line() -> str:
    """The first line: the program's version and the stream's."""
    return json_line("version", {"provision": __version__, "format": FORMAT})


def event_line(event: Any) -> str:
    """One event (a dataclass) as a line; its type is its class's name in snake case."""
    return json_line(event_type(event), plain_value(event))


def json_line(kind: str, content: Mapping[str, Any]) -> str:
    """A line of the stream, its type first; in ASCII, so that no text of others steers the terminal of who reads it."""
    return json.dumps({"type": kind, **plain_value(content)})


def event_type(event: object) -> str:
    """``PlannedChange`` → ``planned_change``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()


def plain_value(value: Any) -> Any:
    """``value`` made of JSON's own types only; a ``Secret`` at any depth is a mask, what is unknown is its text."""
    if isinstance(value, Secret):
        return MASK
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return str(value)  # an address is one of our own types, which dumpers refuse
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return _plain_container(value)


def _plain_container(value: Any) -> Any:
    """Mappings of dataclasses and mappings, lists of the other containers; the text of anything else."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain_value(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return list(map(plain_value, sorted(value, key=str)))
    if isinstance(value, (list, tuple)):
        return list(map(plain_value, value))
    return str(value)
