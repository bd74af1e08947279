"""What is about to be asked of a service to see what its clients see."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.measuring.budget import BUDGET_S
from provisioner.measuring.llm_bench import Depth, most_tokens
from provisioner.report.style import count_text, duration_text


def foretold_text(name: str, depths: Sequence[Depth], trials: int, *, costs: bool) -> str:
    """How long it takes, or how many tokens are read and written by something that may cost money."""
    behind = f" at each of {count_text(len(depths), 'depth')}" if len(depths) > 1 else ""
    if not trials:
        return f"{name} is asked by llama-benchy for about {duration_text(BUDGET_S)}{behind}; nobody else may ask it."
    asked = f"{name} is asked by llama-benchy, {count_text(trials, 'trial')}{behind}"
    if not costs:
        return f"{asked}; nobody else may ask it."
    told = most_tokens(depths, trials)
    return (
        f"{asked}: {told['requests']} requests with about {told['read']:,} tokens together, answered with up to "
        f"{told['written']:,}. What that costs, its provider says."
    )
