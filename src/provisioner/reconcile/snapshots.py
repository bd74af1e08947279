"""Snapshots: the verbs ``snapshot``, ``rollback``, ``clone``, and what ``up`` takes before it changes something."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import Literal, TypeVar

from provisioner.lab.opening import Lab
from provisioner.reconcile import journal
from provisioner.reconcile.effects import Effects, Outcome
from provisioner.reconcile.observe import Survey, closable, observe, settled
from provisioner.reconcile.stop import drop_volumes
from provisioner.report.style import PLAIN, Style, table
from provisioner.values.errors import InputError, PreflightError, ProviderError, ProvisionError
from provisioner.values.events import ApplyComplete, ApplyErrored, ApplyStart, Diagnostic
from provisioner.values.facts import Closed, ContainerFact, Health, RoleStamp, UnitState, of_kind
from provisioner.values.plain_data import Foreign
from provisioner.values.plan import Change, Plan
from provisioner.values.state import Instance, Service, Snapshot, Status

ROLLBACK, CLONE = "rollback", "clone"
CHANGED_CLONE = "clone --set"  # starts the copy itself, before the file has it
"""What is noted of a container while the verb works on it."""
NEWEST_ONLY = "its storage goes back to the newest snapshot only"
NO_WAY_BACK = "Run up with --no-rollback to change it without a way back."
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Before:
    """The state of a container before a run changed it: its snapshot, and whether it had proved itself by then."""

    snapshot: str
    proved: bool


Kept = Mapping[str, Before]


def refuse_impossible(made: Plan, seen: Survey, effects: Effects, keep: int) -> None:
    """Raise ``PreflightError`` when a state that may be needed again cannot be kept."""
    _refuse(obstacles(made, seen, effects, keep), NO_WAY_BACK)


def obstacles(made: Plan, seen: Survey, effects: Effects, keep: int) -> dict[str, str]:
    """Why no state of a container could be kept before the plan changes it, by its name; only those that have one."""
    changed = _to_be_changed(made, seen) if keep else []
    found = {one.name: effects.providers[one.host].snapshots.obstacle(one) for one in changed}
    return {name: why for name, why in found.items() if why}


def keep_before(made: Plan, seen: Survey, effects: Effects, keep: int) -> Kept:
    """Take a snapshot of every running container that the plan changes; none when none are kept.

    Nobody writes any more into what would be lost with that container; ``open_again`` ends that.
    """
    if not keep:
        return {}

    wanted = {one.name: one for one in seen.wanted}

    def take(one: Instance) -> tuple[str, Before]:
        if one.name in wanted:
            close(wanted[one.name], seen.facts, effects)
        proved = proved_as_it_is(one.name, seen.facts)
        name = next_name(one, "" if proved else "unproved")
        worked(effects, one.name, "snapshot", lambda: effects.providers[one.host].snapshots.take(one, name))
        return one.name, Before(name, proved)

    there = observe(seen.desired.lab, effects.providers)
    changed = [found for one in _to_be_changed(made, seen) if (found := there.instance(one.name))]
    with ThreadPoolExecutor(max(1, len(changed))) as pool:
        return dict(pool.map(take, changed))


def go_back(
    kept: Kept, seen: Survey, failed: Collection[str], unharmed: Collection[str], effects: Effects
) -> tuple[str, ...]:
    """Bring what failed, and what was changed together with it, back to the state that had proved itself.

    ``unharmed`` failed before anything was changed in it and stays as it is. Gives what became of each, in words.
    """
    needs = {one.name: {need.container for s in one.services for need in s.needs} for one in seen.wanted}
    together = bound_together(failed, kept.keys(), needs)
    told = []
    for one in seen.wanted:
        if one.name in unharmed:
            told.append(f"{one.name}: nothing was changed in it")
        elif one.name in together and kept[one.name].proved:
            told.append(f"{one.name}: {_gone_back(one, kept[one.name].snapshot, effects)}")
        elif one.name in together:
            told.append(
                f"{one.name}: left as it is; it had not proved itself before (snapshot {kept[one.name].snapshot})"
            )
        elif one.name in failed:
            told.append(f"{one.name}: left as it is; there is no state of it that has proved itself")
    return tuple(told)


def drop_surplus(lab: Lab, touched: Sequence[Instance], effects: Effects, keep: int) -> None:
    """Delete our oldest snapshots of what was touched, and the volumes that only they needed."""
    names = {one.name for one in touched}
    for one in [one for one in observe(lab.name, effects.providers).instances if one.name in names]:
        old = surplus(one, keep)
        for kept in old:
            effects.providers[one.host].snapshots.delete(one, kept.name)
        drop_volumes([replace(one, devices=(), snapshots=old)], effects)


def snapshot(lab: Lab, effects: Effects, name: str, targets: Sequence[str] = ()) -> Mapping[str, str]:
    """Keep the state of the lab's containers under ``name``; raises when it cannot be kept or the name is ours.

    A name that is taken is refused, unless by a run of the same command that was interrupted: then the rest is kept.
    """
    if is_ours(name):
        raise InputError(f"Unable to name a snapshot {name}: names that begin with provision- are provision's own")
    work = f"snapshot {name}"
    with effects.locked(lab.name, "snapshot") as lease:
        chosen = _chosen(lab, effects, targets)
        begun = journal.noted(lab.name, work, effects)
        found = {one.name: effects.providers[one.host].snapshots.obstacle(one) for one in chosen}
        _refuse({one: why for one, why in found.items() if why}, "Limit the verb to other containers.")
        taken = frozenset(one.name for one in chosen if name in {kept.name for kept in one.snapshots})
        others = taken - begun
        if begun and taken == {one.name for one in chosen}:
            others = frozenset()  # it was killed when it had taken all of them, and had begun to say so
        _refuse(dict.fromkeys(sorted(others), f"it has a snapshot {name}"), "Choose another name.")
        lease.check()
        journal.note(chosen, work, effects)
        for one in chosen:
            if one.name not in taken:
                worked(effects, one.name, "snapshot", partial(effects.providers[one.host].snapshots.take, one, name))
        journal.forget(chosen, effects)
    return {one.name: name for one in chosen}


def rollback(lab: Lab, effects: Effects, targets: Sequence[str], to: str | None = None) -> Outcome:
    """Bring containers back to a snapshot, the newest that had proved itself or ``to``; what they are now is kept.

    One that ran runs afterwards, also where a run before this one was killed after it had stopped it.
    """
    with effects.locked(lab.name, "rollback") as lease:
        chosen = _chosen(lab, effects, targets)
        stopped = journal.noted(lab.name, ROLLBACK, effects)
        to_run = [one for one in chosen if one.status is Status.RUNNING or one.name in stopped]
        names = {one.name: _snapshot_of(one, to) for one in chosen}
        reasons = {one.name: f"to snapshot {names[one.name]}; {_what_becomes(one, effects)}" for one in chosen}
        for one in to_run:
            if one.status is not Status.RUNNING:
                reasons[one.name] += "; it ran until a rollback of it was interrupted, and is started"
        made = Plan(tuple(Change("rollback", one.name, one, one, reasons[one.name]) for one in chosen))
        effects.announce(made)
        if not effects.confirm(made):
            return Outcome(made, applied=False)
        lease.check()
        journal.note(to_run, ROLLBACK, effects)
        for one in chosen:
            _back(one, names[one.name], next_name(one, "replaced"), effects)
        for one in to_run:
            effects.providers[one.host].start(one)  # the driver starts again what it has found running
            effects.providers[one.host].wait_until_ready(one)
        journal.forget(to_run, effects)
    return Outcome(made, applied=True)


def clone(lab: Lab, effects: Effects, source: str, name: str) -> Instance:
    """A stopped copy of a container under another name, of the same lab; nothing of the file is changed."""
    with effects.locked(lab.name, "clone") as lease:
        (one,) = _chosen(lab, effects, (source,))
        provider = effects.providers[one.host]
        obstacle = provider.snapshots.obstacle(one)
        _refuse({source: obstacle} if obstacle else {}, "")
        copy = replace(one, name=name)
        left = left_copy(copy, effects)
        lease.check()
        if left is not None:
            effects.providers[left.host].delete(left)
        journal.note([copy], CLONE, effects)
        try:
            made = worked(effects, name, "clone", lambda: provider.clone(one, name))
        finally:  # a driver that fails, or is interrupted, removes what it had made
            journal.forget([copy], effects)
    return made


def left_copy(copy: Instance, effects: Effects) -> Instance | None:
    """Return what a killed run has left of such a copy: it may be half made, and is to be deleted and made anew.

    Raises ``PreflightError`` where somebody else than that run has started it: what is in it may be wanted.
    """
    there = observe(copy.lab, effects.providers).instance(copy.name)
    if there is None or copy.name in journal.noted(copy.lab, CHANGED_CLONE, effects):
        return there
    if copy.name not in journal.noted(copy.lab, CLONE, effects):
        return None
    if there.status is not Status.STOPPED:
        raise PreflightError(
            f"Unable to clone a container as {copy.name}: a run that was killed left a copy of that name",
            details="Somebody has started it since. Whether it is whole is not known.",
            resolution=f"Delete it (provision destroy {copy.name}), then run the same command again.",
        )
    return there


def _to_be_changed(made: Plan, seen: Survey) -> list[Instance]:
    names = {one.container for one in made.of("update", "configure", "adopt")}
    adopted = (one.before for one in made.of("adopt") if isinstance(one.before, Instance))
    there = (*seen.actual.instances, *adopted)
    return [one for one in there if one.name in names and one.status is Status.RUNNING]


def proved_as_it_is(name: str, facts: Sequence[ContainerFact]) -> bool:
    """Whether all its stamps hold and all its services work; what it is to be may have changed since."""
    mine = [fact for fact in facts if fact.address.container == name]
    stamps = of_kind(mine, RoleStamp)
    holds = bool(stamps) and not any(stamp.problem or stamp.changed for stamp in stamps)
    runs = all(unit.is_well for unit in of_kind(mine, UnitState))
    return holds and runs and all(health.is_well for health in of_kind(mine, Health))


def _gone_back(one: Instance, name: str, effects: Effects) -> str:
    """Roll it back and see whether it works again; what comes of it is said, the first failure must not be lost."""
    there = observe(one.lab, effects.providers).instance(one.name) or one
    failed = next_name(there, "failed")
    try:
        kept = _back(there, name, failed, effects)
        effects.providers[one.host].wait_until_ready(one)
        works = proved_as_it_is(one.name, settled([one], effects))
    except ProvisionError as error:
        return f"it could not be brought back to snapshot {name}: {error}"
    state = "works again" if works else "does not work all the same"
    rest = f"the failed one is kept as {failed}" if kept else f"the failed one is gone: {NEWEST_ONLY}"
    return f"rolled back to its last verified state (snapshot {name}), which {state}; {rest}"


def _back(one: Instance, name: str, now: str, effects: Effects) -> bool:
    """Roll it back; whether what it was until then is kept as snapshot ``now``."""
    provider = effects.providers[one.host]
    can_keep = not provider.snapshots.is_newest_only(one)

    def back() -> Instance:
        if can_keep:
            provider.snapshots.take(one, now)
        return provider.snapshots.rollback(one, name)

    worked(effects, one.name, "rollback", back)
    return can_keep


def _chosen(lab: Lab, effects: Effects, targets: Sequence[str]) -> list[Instance]:
    """The containers that are there; an orphan may be named."""
    there = observe(lab.name, effects.providers)
    known = {one.name for one in there.instances}
    missing = [name for name in targets if name not in known]
    lab.check_targets(missing)
    reasons = {name: there.absence(name, lab.loaded.path) for name in missing}
    hints = dict.fromkeys(hint for _, hint in reasons.values())
    _refuse({name: why for name, (why, _) in reasons.items()}, "\n".join(hints))
    return [one for one in there.instances if not targets or one.name in targets]


def _what_becomes(one: Instance, effects: Effects) -> str:
    if effects.providers[one.host].snapshots.is_newest_only(one):
        return f"what it is now is lost: {NEWEST_ONLY}"
    return "what it is now is kept as a snapshot"


def _snapshot_of(one: Instance, to: str | None) -> str:
    names = [kept.name for kept in one.snapshots]
    newest = latest(one)
    found = to if to in names else newest.name if newest and to is None else None
    if found is None:
        why = f"it has no snapshot {to}" if to else "it has no snapshot to go back to"
        _refuse({one.name: why}, "Its snapshots: " + (", ".join(names) or "none"))
    return str(found)


def _refuse(reasons: Mapping[str, str], resolution: str) -> None:
    if reasons:
        raise PreflightError(
            f"Unable to keep or bring back a state of container {', '.join(reasons)}",
            details="\n".join(f"{name}: {why}" for name, why in reasons.items()),
            resolution=resolution,
        )


def worked(effects: Effects, target: str, action: str, work: Callable[[], T]) -> T:
    """Do ``work``, and say when it begins and how it ended."""
    effects.emit(ApplyStart(target, action))
    started = monotonic()
    try:
        done = work()
    except ProvisionError as error:
        effects.emit(ApplyErrored(target, action, error.message))
        raise
    effects.emit(ApplyComplete(target, action, monotonic() - started))
    return done


# Names of snapshots, and by them which are kept and gone back to. Pure.
#
# Ours are named `provision-<n>` (the container had proved itself), `provision-<n>-unproved` (something in it had
# changed by then), `provision-<n>-failed` (what a rollback left behind) and `provision-<n>-replaced` (what a rollback
# by hand left behind). All other names are the user's.

Kind = Literal["", "unproved", "failed", "replaced"]
_OURS = re.compile(r"provision-(\d+)(?:-([a-z]+))?")


def next_name(instance: Instance, kind: Kind = "") -> str:
    """A name that no snapshot of the container has or had among those that are kept."""
    numbers = [int(found[1]) for one in instance.snapshots if (found := _OURS.fullmatch(one.name))]
    return f"provision-{max(numbers, default=0) + 1}" + (f"-{kind}" if kind else "")


def is_ours(name: str) -> bool:
    """Whether the program gives such names itself."""
    return name.startswith("provision-")


def surplus(instance: Instance, keep: int) -> tuple[Snapshot, ...]:
    """Our snapshots beyond the ``keep`` newest before changes, and the ``keep`` newest that rollbacks left behind."""
    groups: dict[bool, list[Snapshot]] = {False: [], True: []}
    for one in sorted(instance.snapshots, key=_number):
        found = _OURS.fullmatch(one.name)
        if found:
            groups[found[2] in ("failed", "replaced")].append(one)
    return tuple(one for group in groups.values() for one in group[: max(0, len(group) - keep)])


def latest(instance: Instance) -> Snapshot | None:
    """What a rollback goes back to when nothing is named: the newest state that had proved itself, or is the user's."""
    good = [one for one in instance.snapshots if not is_ours(one.name) or re.fullmatch(r"provision-\d+", one.name)]
    return good[-1] if good else None


def bound_together(failed: Iterable[str], changed: Collection[str], needs: Mapping[str, Collection[str]]) -> set[str]:
    """The containers of ``changed`` that go back together when ``failed`` do: a gateway and the engine that it asks.

    ``needs``: by container those that it asks.
    """
    links = {(one, other) for one, others in needs.items() for other in others if one in changed and other in changed}
    found: set[str] = set()
    reached = {one for one in failed if one in changed}
    while reached:
        found |= reached
        reached = {b if a in found else a for a, b in links if (a in found) != (b in found)}
    return found


def _number(snapshot: Snapshot) -> int:
    found = _OURS.fullmatch(snapshot.name)
    return int(found[1]) if found else 0


# Keeping people out of a service whose container may go back to an earlier state: what they wrote would be lost.

NOT_LOADED = 5
"""So systemctl ends where there is no such unit: an earlier version made the container."""
MARGIN_S = 60.0
"""So long systemd may take beside what the container's services drain: signing in, then running answers."""


def close(one: Instance, facts: Collection[ContainerFact], effects: Effects) -> None:
    """Have people see a page in the place of the container's services that they write into, and wait for answers.

    One that cannot be closed is told and left as it is: it is no reason to leave a fault unmended.
    """
    for service in closable(one, facts):
        _told(one, service, "close", effects)


def open_again(instances: Iterable[Instance], facts: Collection[ContainerFact], effects: Effects) -> None:
    """Let people in again, also where an earlier run had closed a service; nothing where it is open."""
    for one in instances:
        for service in closable(one, facts):
            _told(one, service, "open", effects)


def without_closed(facts: Iterable[ContainerFact]) -> tuple[ContainerFact, ...]:
    """What counts while a run itself keeps people out."""
    return tuple(fact for fact in facts if not isinstance(fact, Closed))


def is_left_closed(one: Instance, facts: Iterable[ContainerFact]) -> bool:
    """Whether a run that has not come to its end keeps people out of a service of it."""
    return any(fact.address.container == one.name for fact in of_kind(facts, Closed))


def _told(one: Instance, service: Service, action: str, effects: Effects) -> None:
    verb = {"close": "start", "open": "stop"}[action]
    target, began = str(service.address), monotonic()
    effects.emit(ApplyStart(target, action))
    try:
        ran = effects.providers[one.host].execute(
            one.name, ["systemctl", verb, "--", service.closed_by], timeout_s=2 * one.stop_s + MARGIN_S
        )
        if ran.returncode and (action, ran.returncode) != ("open", NOT_LOADED):
            words = Foreign.of_output(ran.stderr)
            raise ProviderError(f"systemctl {verb} {service.closed_by} ended with {ran.returncode}", details=words)
    except ProvisionError as error:
        effects.emit(ApplyErrored(target, action, error.message))
        effects.emit(_warning(service, action, error))
        return
    effects.emit(ApplyComplete(target, action, monotonic() - began))


def _warning(service: Service, action: str, error: ProvisionError) -> Diagnostic:
    details = "\n".join(filter(None, (error.message, error.details)))
    resolution = f"See why with: provision exec {service.container} -- journalctl -u {service.closed_by}"
    if action == "close":
        message = f"Unable to keep people out of {service.address}: what they write now is lost if this run goes back"
    else:
        message = f"Unable to let people into {service.address} again: run up, or start its container anew"
    return Diagnostic("warning", message, details=details, resolution=resolution)


# The snapshots as text.


_HEAD = ("CONTAINER", "SNAPSHOT", "TAKEN")


def snapshots_text(instances: Sequence[Instance], style: Style = PLAIN) -> str:
    """One row per snapshot, the oldest first."""
    rows: list[tuple[str, ...]] = []
    for instance in instances:
        rows += [(instance.name, snapshot.name, _second(snapshot.created)) for snapshot in instance.snapshots]
    if not rows:
        return "No snapshots are kept."
    return table(_HEAD, rows, style)


def _second(moment: str) -> str:
    """The second of a host's moment (ISO 8601) in UTC; what is no such moment stays as the host says it."""
    try:
        taken = datetime.fromisoformat(moment)
    except ValueError:
        return moment
    return f"{taken.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
