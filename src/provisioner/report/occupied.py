"""What lies on a card beside what ``suggest`` would put there, as lines and as values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from provisioner.loads.occupied import Occupied, Taken
from provisioner.loads.refusals import mib
from provisioner.report.style import safe_line


def occupied_lines(occupied: Occupied | None, *, is_exclusive: bool = False) -> list[str]:
    """Which card is meant, who takes how much of it, and what of that is not taken off; a blank line at the end.

    Nothing where a card was named, and where nothing of the file lies there.
    """
    if occupied is None or occupied.budget is None:
        return []
    title = safe_line(occupied.card.title)
    if is_exclusive:
        return [
            f"As if nothing of the file lay on {title}, where {mib(occupied.total)} are taken by the sums of fit.",
            "",
        ]
    return [*_taken_lines(occupied, title), ""]


def _taken_lines(occupied: Occupied, title: str) -> Iterator[str]:
    yield f"What services of the file take of {title} by the sums of fit is taken off (--exclusive: none of it):"
    for taken in occupied.taken:
        size = mib(taken.engine.total)
        if taken.engine.unknown:
            size = f"at least {size}, and nobody knows how much: {safe_line(taken.engine.unknown)}"
        besides = f"; not beside {safe_line(', '.join(taken.not_beside))}" if taken.not_beside else ""
        yield f"  {safe_line(taken.engine.address)}: {size}{besides}"


def occupied_content(occupied: Occupied | None) -> dict[str, Any]:
    """The same as values: bytes; ``card`` is None where one was named."""
    if occupied is None:
        return {"card": None, "taken": []}
    return {"card": occupied.card.title, "taken": [_taken_content(taken) for taken in occupied.taken]}


def _taken_content(taken: Taken) -> dict[str, Any]:
    return {
        "service": taken.engine.address,
        "bytes": taken.engine.total,
        "unknown": taken.engine.unknown or None,
        "not_beside": list(taken.not_beside),
    }
