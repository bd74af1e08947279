"""The verbs ``plan`` and ``up``: look, plan, ask. Changes are made by ``run``, imported when there are any."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from provisioner.lab.opening import Lab, keep_pins, look_at_models
from provisioner.reconcile.effects import Effects, Outcome
from provisioner.reconcile.journal import interrupted, recording
from provisioner.reconcile.observe import Survey, check_seen, survey
from provisioner.values.events import Diagnostic
from provisioner.values.plan import AS_WRITTEN, Plan, Wishes
from provisioner.values.state import Fleet


@dataclass(frozen=True, slots=True)
class How:
    """How ``up`` goes about it: ``full`` runs everything again, ``rollback`` goes back where a proof fails."""

    full: bool = False
    rollback: bool = True


USUALLY = How()


def up(lab: Lab, effects: Effects, wishes: Wishes = AS_WRITTEN, how: How = USUALLY) -> Outcome:
    """Make the lab what the file says, and prove it; raises ``VerificationError`` when the proof fails."""
    from provisioner.reconcile.judge import judge  # both judge proofs: nothing that a plan needs
    from provisioner.reconcile.prove import announce_checks

    lab.check_targets([*wishes.targets, *wishes.replace])
    with effects.locked(lab.name, "up") as lease:
        before = interrupted(lab.folder)
        if before:
            effects.emit(Diagnostic("warning", f"The {before}; this run goes on from what is there."))
        # What is pruned goes with the volumes that only its snapshots need.
        lab, seen, made = _planned(lab, effects, wishes, full=how.full, detailed=wishes.prune)
        keep = lab.spec.snapshots.keep if how.rollback else 0
        if made.is_empty:
            effects.confirm(made)
            keep_pins(lab, seen.models.pins)
            if before:
                with recording(lab.folder, "up", effects.emit):
                    pass  # the interrupted run has been told, and there was nothing left of it to do
            announce_checks(seen.wanted, judge(Fleet(lab.name, seen.wanted), seen.actual, seen.facts), effects)
            return Outcome(made, applied=True)

        from provisioner.reconcile import addresses, run, snapshots

        effects.review(made, seen.desired)
        addresses.say(lab, seen.addresses, made, effects.emit)
        snapshots.refuse_impossible(made, seen, effects, keep)
        if not effects.confirm(made):
            return Outcome(made, applied=False)
        keep_pins(lab, seen.models.pins)
        with recording(lab.folder, "up", effects.emit) as emit:
            run.Run(lab, replace(effects, emit=emit), lease, seen, made, keep).carry_out()
    return Outcome(made, applied=True)


def plan(lab: Lab, effects: Effects, wishes: Wishes = AS_WRITTEN, *, full: bool = False) -> Plan:
    """What ``up`` would do, with what is known about it before; nothing is touched."""
    lab.check_targets([*wishes.targets, *wishes.replace])
    lab, seen, made = _planned(lab, effects, wishes, full=full)
    if made.is_empty:
        return made

    from provisioner.reconcile import addresses, snapshots

    effects.review(made, seen.desired)
    addresses.say(lab, seen.addresses, made, effects.emit)
    for name, why in snapshots.obstacles(made, seen, effects, lab.spec.snapshots.keep).items():
        message = f"There is no way back for container {name}: {why}"
        effects.emit(Diagnostic("warning", message, resolution=snapshots.NO_WAY_BACK))
    return made


def _planned(
    lab: Lab, effects: Effects, wishes: Wishes, *, full: bool, detailed: bool = False
) -> tuple[Lab, Survey, Plan]:
    """Look at the hosts, and plan; what is known of the models and the cards before is said, or refused.

    The lab that is returned knows the heads of its models elsewhere.
    """
    seen = survey(lab, effects, wishes.targets, full=full, detailed=detailed, anew=wishes.replace)
    check_seen(lab, seen, effects)
    lab, new = look_at_models(lab, seen.models.files)
    for said in new:
        effects.emit(said)
    if seen.cards:
        from provisioner.serving.fit import check_fit  # a lab without cards pays nothing for them

        check_fit(lab, seen.models.files, seen.cards, effects.emit, wishes.targets)
    made = effects.planned(partial(seen.plan, wishes))
    effects.announce(made)
    return lab, seen, made
