"""Waiting for services that come up again by themselves: their container was started a moment ago."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from provisioner.probe import probe, require_answers
from provisioner.state import ACTIVE, Fact, Instance, is_well
from provisioner.workflow.effects import Effects

SETTLE_TIMEOUT_S = 180.0
"""A gateway with cold caches on a busy machine took 40 s until it answered."""
SETTLE_POLL_S = 0.5


def settled(instances: Sequence[Instance], effects: Effects) -> tuple[Fact, ...]:
    """Facts of containers once their services have come up, or have not within ``SETTLE_TIMEOUT_S``.

    A service that nobody has proved yet is not waited for.
    """
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while True:
        facts = probe(instances, effects.providers)
        require_answers(facts)
        if not any(_is_coming_up(one, facts) for one in instances) or time.monotonic() > deadline:
            return facts
        time.sleep(SETTLE_POLL_S)


def _is_coming_up(instance: Instance, facts: Iterable[Fact]) -> bool:
    seen = {(fact.subject, fact.name): fact.value for fact in facts}
    for one in instance.services:
        unit, health = seen.get((one.address, "unit")), seen.get((one.address, "health"))
        if "problem" in seen.get((one.address, "stamp"), {"problem": ""}):
            continue
        if unit in ("activating", "reloading") or (unit == ACTIVE and health is not None and not is_well(health)):
            return True
    return False
