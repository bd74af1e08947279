"""Waiting for services that come up again by themselves: their container was started a moment ago."""

from __future__ import annotations

import time
from collections.abc import Sequence

from provisioner.probe import probe, require_answers
from provisioner.values.facts import ContainerFact, Health, RoleStamp, UnitState, by_address
from provisioner.values.state import Instance
from provisioner.workflow.effects import Effects

SETTLE_TIMEOUT_S = 180.0
"""A gateway with cold caches on a busy machine took 40 s until it answered."""
SETTLE_POLL_S = 0.5
STARTING = ("activating", "reloading")
"""systemd's words for units that will soon be active."""


def settled(instances: Sequence[Instance], effects: Effects) -> tuple[ContainerFact, ...]:
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


def _is_coming_up(instance: Instance, facts: Sequence[ContainerFact]) -> bool:
    units, pages, stamps = by_address(facts, UnitState), by_address(facts, Health), by_address(facts, RoleStamp)
    for service in instance.services:
        stamp, unit, health = stamps.get(service.address), units.get(service.address), pages.get(service.address)
        if stamp is None or stamp.problem or unit is None:
            continue
        is_late = unit.is_active and health is not None and not health.is_well
        if is_late or unit.state in STARTING:
            return True
    return False
