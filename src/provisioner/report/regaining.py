"""What letting one part of a cluster decide alone would mean: as text and for machine-readable output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from provisioner.repair.forgetting import Sign
from provisioner.repair.quorum import Regaining
from provisioner.report.style import PLAIN, Style, count_text, safe_line

DANGER = (
    "Danger: if any of them runs and is only cut off, both parts can write from now on. The same guest may then run\n"
    "twice on one disk, and nothing merges the two afterwards. Prefer to bring the others back."
)
NOT_NEEDED = "Nothing to do: it is quorate."


def plan_text(regaining: Regaining, signs: Sequence[Sign], style: Style = PLAIN) -> str:
    """What would be done, what was proved, and the danger."""
    if not regaining.is_needed:
        return f"{regaining.host}: {NOT_NEEDED}"
    votes = count_text(regaining.votes, "vote")
    head = style.paint(f"{regaining.host} is to decide with {votes}: pvecm expected {regaining.votes}", "bold")
    lines = [head]
    if regaining.off:
        lines.append(f"Said to be off: {', '.join(regaining.off)}")
    for sign in signs:
        state = "alive " if sign.is_alive else "silent"
        lines.append(f"  {state}  {sign.address} ({sign.how}): {safe_line(sign.said)}")
    return "\n".join([*lines, style.paint(DANGER, "yellow")])


def regaining_content(regaining: Regaining, signs: Sequence[Sign]) -> dict[str, Any]:
    """What would be done and what was proved, for machine-readable output."""
    return {
        "host": regaining.host,
        "cluster": regaining.cluster,
        "votes": regaining.votes,
        "off": regaining.off,
        "is_needed": regaining.is_needed,
        "objections": regaining.objections,
        "signs": signs,
    }
