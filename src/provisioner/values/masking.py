"""Values of secrets taken out of what others have said: the last line of defence, not the first."""

from __future__ import annotations

import json
from collections.abc import Iterable

from provisioner.values.declared import Secret

MASK = "********"
SHORTEST_SECRET = 6
"""A shorter value would be found in words that have nothing to do with it."""


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
