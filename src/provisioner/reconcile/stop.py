"""The verbs ``down`` and ``destroy``, and how containers are deleted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from provisioner.lab.fleet import stop_s
from provisioner.lab.opening import Lab
from provisioner.reconcile import journal, volumes
from provisioner.reconcile.apply import apply_instances
from provisioner.reconcile.effects import Effects, Outcome
from provisioner.reconcile.observe import observe, warn_of_moved
from provisioner.reconcile.plan import make_destroy_plan, make_stop_plan
from provisioner.values.plan import Change, Plan
from provisioner.values.state import Fleet, Instance, InstanceKind

DELETION = "deletion"
"""What is noted of a container until the volumes that it used are gone, too."""


def down(lab: Lab, effects: Effects, targets: Sequence[str] = ()) -> Outcome:
    """Stop the containers that the file names, or those named here; their data is kept."""
    with effects.locked(lab.name, "down") as lease:
        there = observe(lab.name, effects.providers)
        warn_of_moved(there, effects)
        wanted = frozenset(targets or lab.spec.containers)
        made = make_stop_plan(_with_stop_times(there, lab), frozenset(lab.spec.containers), targets=targets)
        effects.announce(made)
        if not effects.confirm(made):
            return Outcome(made, applied=False)
        lease.check()
        journal.forget([one for one in there.instances if one.name in wanted], effects)
        apply_instances(made.changes, effects.providers, effects.emit)
        return Outcome(made, applied=True)


def _with_stop_times(there: Fleet, lab: Lab) -> Fleet:
    """The same containers, each with the time that the file's services want to end."""
    instances = []
    for instance in there.instances:
        container = lab.resolved.containers.get(instance.name)
        instances.append(replace(instance, stop_s=stop_s(container)) if container else instance)
    return replace(there, instances=tuple(instances))


def destroy(lab: Lab, effects: Effects, targets: Sequence[str] = (), *, prune: bool = False) -> Outcome:
    """Delete the containers that the file names, or those named here, and the artifacts that nothing uses any more.

    The rest of the lab is kept unless ``prune`` says otherwise: another file may name it.
    """
    with effects.locked(lab.name, "destroy") as lease:
        there = observe(lab.name, effects.providers)
        warn_of_moved(there, effects)
        made = make_destroy_plan(there, frozenset(lab.spec.containers), targets=targets, prune=prune)
        effects.announce(made)
        if not effects.confirm(made):
            return Outcome(made, applied=False)
        lease.check()
        volumes.release(lab.name, effects.providers.values())
        delete(made, lab.name, effects)
        return Outcome(made, applied=True)


def delete(made: Plan, lab: str, effects: Effects) -> None:
    """Delete what the plan deletes, then the volumes that only it used: a leftover builder's is half made.

    A run that was killed between the two is brought to its end as well.
    """
    doomed = [change for change in made.of("delete") if not _is_taken_over(change, lab, effects)]
    former = [change.before for change in doomed if isinstance(change.before, Instance)]
    journal.note(former, DELETION, effects)
    apply_instances(doomed, effects.providers, effects.emit)
    journal.drop_volumes_of(lab, DELETION, effects)
    volumes.delete_begun(lab, effects.providers.values())


def _is_taken_over(change: Change, lab: str, effects: Effects) -> bool:
    """Whether the container is a leftover builder that another lab has replaced with its own since."""
    if not isinstance(change.before, Instance) or change.before.kind is not InstanceKind.BUILDER:
        return False
    builder = effects.providers[change.before.host].read(change.before.name)
    return builder is not None and builder.lab != lab


def drop_volumes(former: Iterable[Instance], effects: Effects) -> None:
    """Delete the volumes of containers as they were, but for those that are still needed."""
    for one in former:
        volumes.delete_unused(journal.volumes_of(one), one.lab, effects.providers[one.host])
