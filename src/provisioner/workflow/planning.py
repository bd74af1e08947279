"""The verb ``plan``: what ``up`` would do."""

from __future__ import annotations

from functools import partial

from provisioner.lab.opening import Lab
from provisioner.values.events import Diagnostic
from provisioner.values.plan import AS_WRITTEN, Plan, Wishes
from provisioner.workflow.effects import Effects
from provisioner.workflow.surveying import check_seen, survey


def plan(lab: Lab, effects: Effects, wishes: Wishes = AS_WRITTEN, *, full: bool = False) -> Plan:
    """What ``up`` would do, with what is known about it before; nothing is touched."""
    lab.check_targets([*wishes.targets, *wishes.replace])
    seen = survey(lab, effects, wishes.targets, full=full, anew=wishes.replace)
    check_seen(lab, seen, effects)
    for said in lab.look_at_models():
        effects.emit(said)
    if seen.cards:
        from provisioner.workflow.fitting import check_fit  # a lab without cards pays nothing for them

        check_fit(lab, seen.cards, effects.emit, wishes.targets)
    made = effects.planned(partial(seen.plan, wishes))
    effects.announce(made)
    if made.is_empty:
        return made

    from provisioner.workflow import addressing, keeping

    effects.review(made, seen.desired)
    addressing.say(lab, seen.addresses, made, effects.emit)
    for name, why in keeping.obstacles(made, seen, effects, lab.spec.snapshots.keep).items():
        message = f"There is no way back for container {name}: {why}"
        effects.emit(Diagnostic("warning", message, resolution=keeping.NO_WAY_BACK))
    return made
