"""How many trials are made of what is measured, and for how long. Pure."""

from __future__ import annotations

BUDGET_S = 270.0
"""So long the trials of one setting may take, unless their number is said."""
MOST_TRIALS = 60
"""As many make a tenth less seen on a machine whose figures differ by a tenth from one another (``gate``)."""
LEAST_TRIALS = 10
SPREAD_S = BUDGET_S / MOST_TRIALS
"""From trial to trial at least: what disturbs a machine for seconds would be in the way of many at once."""


def trials_within(first_s: float) -> int:
    """How many trials of one setting fit into the time that they may take, where the first one took so long."""
    fit = int(BUDGET_S / first_s) if first_s > 0 else MOST_TRIALS
    return max(LEAST_TRIALS, min(fit, MOST_TRIALS))
