"""What a file and the pages of roles declare: secrets, what is wrong with the file, what a role manages, ports.

Apart from ``state``, which a file that is only checked does not need.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

MASK = "********"
SHORTEST_SECRET = 6
"""A shorter value would be found in words that have nothing to do with it."""
REACHES, INTERNET = "reaches", "internet"
"""The option by which a service that runs others' code says what else it may reach; its word for all that is public."""


class Secret:
    """A value that never shows itself: ``repr``, ``str`` and dumps give stars; only ``reveal()`` gives the value."""

    __slots__ = ("_value", "name")

    def __init__(self, name: str, value: str | None) -> None:
        self.name = name
        self._value = value

    @property
    def key(self) -> str:
        """The name with everything but letters, digits and ``_.-~/`` percent-encoded: safe in a template."""
        return quote(self.name)

    @property
    def is_known(self) -> bool:
        """Whether the value was looked up: a verb that does not use it does not run the command that gives it."""
        return self._value is not None

    def reveal(self) -> str:
        """The value in clear, for the one place that hands it to the host; ``ValueError`` when it was not looked up."""
        if self._value is None:
            raise ValueError(f"the value of secret {self.name!r} was not looked up by this verb")
        return self._value

    def __repr__(self) -> str:
        return f"Secret({self.name!r}, '********')"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and (self.name, self._value) == (other.name, other._value)

    def __hash__(self) -> int:
        return hash((self.name, self._value))


def secrets_of(values: Any) -> dict[str, Secret]:
    """Every secret anywhere in ``values``, by its name."""
    if isinstance(values, Secret):
        return {values.name: values}
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, list | tuple):
        return {name: secret for value in values for name, secret in secrets_of(value).items()}
    return {}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with the file: where (``path`` from its top: keys and list indexes), what, and what to do."""

    path: tuple[str | int, ...]
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Managed:
    """What a role manages in a container, by name: what a stamp remembers and a look compares."""

    paths: tuple[str, ...] = ()
    reloaded: tuple[str, ...] = ()
    """Files of what stands before it: written later than the process of a unit was started, they start it not anew."""
    helpers: tuple[str, ...] = ()
    """The units that read these; they may do so without a new process."""
    watched: tuple[str, ...] = ()
    """Files and folders that the role does not write: a change is named, and stays."""
    packages: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    passwords: tuple[str, ...] = ()
    """Accounts whose passwords the role sets, compared by their hashes."""
    venvs: tuple[str, ...] = ()
    """Folders of virtual environments, compared by the distributions that are installed in them."""


LARGEST_PORT = 65535
STEP_BEHIND = 10000
"""So far from a service's port its own process listens; roles reckon the same (``__<role>_own_port`` in their vars)."""


def port_behind(port: int) -> int:
    """The port on 127.0.0.1 of what a switch hands on to: further up where there is room, else further down."""
    return port + STEP_BEHIND if port + STEP_BEHIND <= LARGEST_PORT else port - STEP_BEHIND


def masked(text: str, secrets: Iterable[Secret]) -> str:
    """``text`` with stars in the place of each value, also where it stands as JSON writes it."""
    for form in hidden_forms(secrets):
        text = text.replace(form, MASK)
    return text


def hidden_forms(secrets: Iterable[Secret]) -> tuple[str, ...]:
    """All that is to be hidden of these secrets, the longest first."""
    forms: set[str] = set()
    for secret in secrets:
        value = secret.reveal() if secret.is_known else ""
        if len(value) >= SHORTEST_SECRET:
            forms |= {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
            forms |= {line for line in value.splitlines() if _tells_something(line)}
    return tuple(sorted(forms, key=len, reverse=True))


def _tells_something(line: str) -> bool:
    """Whether a line of a key is to be hidden where it stands alone; the frame of a PEM text is known to all."""
    return len(line) >= SHORTEST_SECRET and not line.startswith("-----")
