"""The verbs ``down`` and ``destroy``, and how containers are deleted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from provisioner.apply import apply_instances
from provisioner.lab import Lab
from provisioner.plan import Plan, make_destroy_plan, make_stop_plan
from provisioner.state import Instance
from provisioner.workflow.effects import Effects, Outcome
from provisioner.workflow.surveying import observe


def down(lab: Lab, effects: Effects, targets: Sequence[str] = ()) -> Outcome:
    """Stop the lab's containers; their data is kept."""
    with effects.locked(lab.name, "down") as lease:
        made = make_stop_plan(observe(lab.name, effects.providers), targets=targets)
        effects.announce(made)
        if not effects.confirm(made):
            return Outcome(made, applied=False)
        lease.check()
        apply_instances(made.changes, effects.providers, effects.emit)
        return Outcome(made, applied=True)


def destroy(lab: Lab, effects: Effects, targets: Sequence[str] = ()) -> Outcome:
    """Delete the lab's containers, orphans too, and the artifacts that nothing uses any more."""
    with effects.locked(lab.name, "destroy") as lease:
        made = make_destroy_plan(observe(lab.name, effects.providers), targets=targets)
        effects.announce(made)
        if not effects.confirm(made):
            return Outcome(made, applied=False)
        lease.check()
        delete(made, effects)
        return Outcome(made, applied=True)


def delete(made: Plan, effects: Effects) -> None:
    """Delete what the plan deletes, then the volumes that only it used: a leftover builder's is half made."""
    doomed = made.of("delete")
    apply_instances(doomed, effects.providers, effects.emit)
    drop_volumes([change.before for change in doomed if isinstance(change.before, Instance)], effects)


def drop_volumes(former: Iterable[Instance], effects: Effects) -> None:
    """Delete the volumes of containers as they were, but for those that a container or a snapshot still needs."""
    for one in former:
        mounted = {device.properties["volume"] for device in one.devices if device.kind == "volume"}
        for volume in sorted(mounted.union(*(snapshot.volumes for snapshot in one.snapshots))):
            effects.providers[one.host].delete_volume(volume)
