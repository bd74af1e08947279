"""What many clients of a service see at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from provisioner.measuring.load_bench import Judged, figures
from provisioner.report.engine_bench import number_text
from provisioner.report.style import PLAIN, Style, duration_text, safe_line, table

HEAD = ("CLIENTS", "ANSWERS", "FAILED", "FIRST TOKEN", "OF 95 %", "TOKENS/S EACH", "TOKENS/S ALL", "GOOD/S", "GOOD")
SIZE = "1.6 GB"
"""What guidellm and PyTorch take of the disk."""


def foretold_text(name: str, clients: Sequence[int], seconds: float, *, costs: bool, is_made: bool) -> str:
    """How long it takes, what is installed first, and whether it may cost money."""
    took = duration_text(seconds * len(clients))
    numbers = ", ".join(map(str, clients))
    lines = [f"{name} is asked by guidellm for {took}, by {numbers} clients at once; nobody else may ask it."]
    if not is_made:
        lines.append(f"guidellm is fetched and installed first, with PyTorch: it takes about {SIZE} of your cache.")
    if costs:
        lines.append("How many tokens that are depends on how fast it answers. What they cost, its provider says.")
    return "\n".join(lines)


def load_text(found: Sequence[Judged], style: Style = PLAIN) -> str:
    """A line for each number of clients, and what the tool says of itself."""
    objective = found[0].objective
    rate = f"{1 / objective.each_s:g} tokens/s"
    lines = [table(HEAD, [_row(one) for one in found], style), ""]
    lines.append(f"Good is an answer that begins within {objective.first_s:g} s, and goes on with {rate}.")
    for one in found:
        errors = [f"{one.level.clients} clients: {one.level.error}"] if one.level.error else []
        for word in (*errors, *one.level.warnings):
            if safe_line(word) not in lines:
                lines.append(safe_line(word))
    return "\n".join(lines)


def load_content(found: Sequence[Judged]) -> list[dict[str, Any]]:
    """All of it as values."""
    return [{**figures(one), "error": one.level.error, "warnings": list(one.level.warnings)} for one in found]


def _row(judged: Judged) -> tuple[str, ...]:
    said = figures(judged)
    return (
        str(judged.level.clients),
        str(len(judged.level.requests)),
        str(judged.level.failed),
        f"{said['first']:.2f} s",
        f"{said['first_of_most']:.2f} s",
        number_text(said["each"]) if said["each"] else "no stream",
        number_text(said["all"]),
        f"{said['good_per_s']:.2f}",
        f"{said['good']:.0%}",
    )
