"""``make_plan``: what has to change so that the actual lab becomes the desired one. A pure comparison."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from provisioner.errors import PreflightError, joined
from provisioner.state import Artifact, Fleet, Instance, InstanceKind, Service, Status

Action = Literal["create", "start", "stop", "update", "replace", "delete", "build", "configure", "rollback", "adopt"]
Thing = Instance | Artifact | Service
_OF_ARTIFACTS = ("host", "digest", "path")

AS_MADE = frozenset({"host", "image", "vmid", "storage", "unprivileged"})
"""What is decided when a container is made: another one means another container."""
AT_NEXT_START = frozenset({"nesting", "features"})
"""What a running container takes up when it is started again."""
DETACHED_AT_NEXT_START = ("mounts", "host devices")
"""Of these a running container takes up what is added, and lets go of the rest when it is started again."""
RESUMED = "is frozen: it is resumed where it was"
COMPARED = ("host", "image", "cpu", "memory", "disk", "nesting", "devices")


def setting_name(name: str) -> str:
    """A setting as it is shown beside attributes: one that bears the name of an attribute is told apart from it."""
    return f"host {name}" if name in COMPARED else name


def differences(before: Instance | None, after: Instance | None) -> dict[str, tuple[Any, Any]]:
    """The attributes and settings in which two states of a container differ, each as (before, after).

    Settings count as far as ``after`` has them; without it, as far as ``before`` does.
    """
    pairs = {name: (getattr(before, name, None), getattr(after, name, None)) for name in COMPARED}
    decided = after or before
    for name in sorted(decided.settings) if decided else ():
        found = tuple(one.settings.get(name) if one else None for one in (before, after))
        pairs[setting_name(name)] = found  # type: ignore[assignment]
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def needs_restart(differing: Mapping[str, tuple[Any, Any]]) -> bool:
    """Whether a running container takes up these differences only when it is started again."""

    def parts(entries: Any) -> list[dict[str, Any]]:
        # A disk grows while it is used.
        return [{name: value for name, value in one.items() if name != "size"} for one in entries or ()]

    def lent(devices: Any) -> list[Mapping[str, str]]:
        return [one.properties for one in devices or () if "runtime" in one.properties]

    if "devices" in differing and lent(differing["devices"][0]) != lent(differing["devices"][1]):
        return True  # a driver's user space is mounted when a container starts
    pairs = [differing[name] for name in DETACHED_AT_NEXT_START if name in differing]
    is_detached = any(one not in parts(after) for before, after in pairs for one in parts(before))
    return is_detached or not AT_NEXT_START.isdisjoint(differing)


@dataclass(frozen=True, slots=True)
class Change:
    """One step: what is done to which container, artifact or service, from what to what, and why."""

    action: Action
    target: str
    before: Thing | None
    after: Thing | None
    reason: str

    @property
    def container(self) -> str:
        """The name of the container that it is done to."""
        return self.target.partition("/")[0]

    def attributes(self) -> dict[str, tuple[Any, Any]]:
        """The attributes that differ, each as (before, after); all of them for a creation or a deletion."""
        thing = self.before or self.after
        if isinstance(thing, Service):
            return {}
        if isinstance(thing, Instance):
            return differences(self.before, self.after)  # type: ignore[arg-type]  # both are of one kind
        pairs = {name: (getattr(self.before, name, None), getattr(self.after, name, None)) for name in _OF_ARTIFACTS}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


@dataclass(frozen=True, slots=True)
class Plan:
    """All changes in the order in which they are applied, and what is only reported."""

    changes: tuple[Change, ...] = ()
    orphans: tuple[Instance, ...] = ()
    leftovers: tuple[str, ...] = ()
    """Addresses of services that were put into a container once and are no longer in the file."""

    @property
    def is_empty(self) -> bool:
        """True when nothing has to be created, changed, started or deleted."""
        return not self.changes

    def of(self, *actions: Action) -> tuple[Change, ...]:
        """The changes with one of these actions."""
        return tuple(change for change in self.changes if change.action in actions)


class ImpossiblePlanError(PreflightError):
    """The lab cannot become what the file says, for all these ``reasons``; ``plan``: what of it would be done."""

    def __init__(self, reasons: Sequence[PreflightError], plan: Plan) -> None:
        whole = joined(reasons)
        super().__init__(whole.message, details=whole.details, resolution=whole.resolution)
        self.reasons = tuple(reasons)
        self.plan = plan


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user asks for beside the file: a limit to ``targets``, forced replacements, orphans to be deleted."""

    targets: frozenset[str] = frozenset()
    replace: frozenset[str] = frozenset()
    prune: bool = False


@dataclass(frozen=True, slots=True)
class Inside:
    """What a look into the running containers gave: ``reasons`` to run a role by address, and ``leftovers``."""

    reasons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    leftovers: tuple[str, ...] = ()


AS_WRITTEN = Wishes()
"""No wish beside the file."""
AS_PROVED = Inside()
"""Nothing inside has to be run again."""


def make_plan(desired: Fleet, actual: Fleet, *, inside: Inside = AS_PROVED, wishes: Wishes = AS_WRITTEN) -> Plan:
    """The changes that lead from ``actual`` to ``desired``.

    Of a container that does not run only the start is planned: what is inside is looked at when it runs.
    Raises ``ImpossiblePlanError`` when a wanted name belongs to a stranger or a wanted image does not exist.
    """
    wanted = [one for one in desired.instances if not wishes.targets or one.name in wishes.targets]
    in_the_way = [*_of_moved(wanted, actual), *_of_taken(wanted, actual)]
    reasons = [*(error for error, _ in in_the_way), *_of_images(wanted, actual)]
    unplanned = [one for _, whose in in_the_way for one in whose]
    wanted = [one for one in wanted if one not in unplanned]
    going_on = {one.builder for one in desired.artifacts if _begun(one, actual)}
    leftovers = [one for one in actual.instances if one.kind is InstanceKind.BUILDER and one.name not in going_on]
    names = {one.name for one in desired.instances}
    orphans = tuple(one for one in actual.instances if one.kind is InstanceKind.SERVING and one.name not in names)
    changes = [
        *(Change("delete", one.name, one, None, "left over from an interrupted build") for one in leftovers),
        *(Change("delete", one.name, one, None, "not in the file") for one in orphans if wishes.prune),
        *_artifact_changes(desired, actual, wanted),
        *(change for one in wanted for change in _adoption(one, actual)),
        *(change for one in wanted for change in _instance_changes(one, _present(one, actual), inside, wishes)),
    ]
    plan = Plan(tuple(changes), () if wishes.prune else orphans, inside.leftovers)
    if reasons:
        raise ImpossiblePlanError(reasons, plan)
    return plan


def make_destroy_plan(
    actual: Fleet, named: Collection[str], *, targets: Collection[str] = (), prune: bool = False
) -> Plan:
    """The deletion of the containers that the file names, or of ``targets`` only; the rest of the lab are orphans.

    Orphans go with ``prune`` or by their names: another file may have the same lab. Containers that only build go, too.
    """
    ours, orphans = _divided(actual, named, targets)
    doomed = [*ours, *(orphans if prune else ())]
    changes = tuple(Change("delete", one.name, one, None, "destroy was asked for") for one in doomed)
    return Plan(changes, () if prune else tuple(orphans))


def make_stop_plan(actual: Fleet, named: Collection[str], *, targets: Collection[str] = ()) -> Plan:
    """The stop of the running containers that the file names, or of ``targets`` only; the rest are orphans."""
    ours, orphans = _divided(actual, named, targets)
    running = [one for one in ours if one.status is not Status.STOPPED]
    changes = tuple(Change("stop", one.name, one, one, "down was asked for") for one in running)
    return Plan(changes, tuple(orphans))


def _divided(actual: Fleet, named: Collection[str], targets: Collection[str]) -> tuple[list[Instance], list[Instance]]:
    """What of the lab a verb that ends it is meant for, and the orphans: what neither file nor command line names."""
    wanted = frozenset(targets or named)
    ours, orphans = [], []
    for one in actual.instances:
        is_builder = one.kind is InstanceKind.BUILDER and not targets
        if one.name in wanted or is_builder:
            ours.append(one)
        elif one.name not in named:
            orphans.append(one)
    return ours, orphans


def _of_moved(wanted: list[Instance], actual: Fleet) -> Iterator[tuple[PreflightError, list[Instance]]]:
    """Refuse to make a second one of what is this lab's and has been moved to where its driver does not work."""
    away, details, hints = [], [], []
    for instance in wanted:
        there = actual.instance(instance.name)
        host = actual.hosts.get(instance.host)
        if host is None or instance.name not in host.moved or (there is not None and there.host == instance.host):
            continue
        where = host.moved[instance.name]
        away.append(instance)
        details.append(f"{instance.name} is {where} now, and the file has it on host {host.name}")
        hints.append(f"Write host: {there.host} for {instance.name}." if there else host.moved_hints[instance.name])
    if away:
        error = PreflightError(
            f"Unable to plan container {_names(away)}: it is this lab's, and elsewhere",
            details="\n".join(details),
            resolution="\n".join(hints),
        )
        yield error, away


def _of_taken(wanted: list[Instance], actual: Fleet) -> Iterator[tuple[PreflightError, list[Instance]]]:
    taken = [
        one
        for one in wanted
        if one.host in actual.hosts and one.name in actual.hosts[one.host].strangers and _adopted(one, actual) is None
    ]
    if taken:
        error = PreflightError(
            f"Unable to plan container {_names(taken)}: the name is taken",
            details="; ".join(f"host {one.host} has a container {one.name} that is not of this lab" for one in taken),
            resolution="Choose another name in the file, or rename the other container; provision never touches it.",
        )
        yield error, taken


def _of_images(wanted: list[Instance], actual: Fleet) -> Iterator[PreflightError]:
    missing: dict[tuple[str, str], list[Instance]] = {}
    for one in wanted:
        is_new = actual.instance(one.name) is None and _adopted(one, actual) is None
        if is_new and one.host in actual.hosts and one.image not in actual.hosts[one.host].images:
            missing.setdefault((one.host, one.image), []).append(one)
    for (host, image), whose in missing.items():
        there = actual.hosts[host]
        yield PreflightError(
            f"Unable to plan container {_names(whose)}: image {image} not found on host {host}",
            details="Images there: " + (", ".join(sorted(there.images)) or "none"),
            resolution=there.image_hint.format(image=image),
        )


def _names(instances: Iterable[Instance]) -> str:
    return ", ".join(one.name for one in instances)


def _adopted(wanted: Instance, actual: Fleet) -> Instance | None:
    """The container that is to become this lab's, as it is; its image is what the file says."""
    there = actual.hosts[wanted.host].adoptable.get(wanted.name) if wanted.host in actual.hosts else None
    return replace(there, image=wanted.image) if wanted.adopt and there is not None else None


def _present(wanted: Instance, actual: Fleet) -> Instance | None:
    return actual.instance(wanted.name) or _adopted(wanted, actual)


def _adoption(wanted: Instance, actual: Fleet) -> Iterator[Change]:
    there = _adopted(wanted, actual)
    if there is not None and actual.instance(wanted.name) is None:
        yield Change("adopt", wanted.name, there, replace(there, lab=wanted.lab), "the file says adopt")


def _begun(artifact: Artifact, actual: Fleet) -> Instance | None:
    """The builder that an ended run has left and the next build begins with."""
    host = actual.hosts.get(artifact.host)
    if not artifact.resumable or (host is not None and artifact.volume in host.volumes):
        return None
    begun = (artifact.builder, artifact.host, artifact.image, InstanceKind.BUILDER)
    return next((one for one in actual.instances if (one.name, one.host, one.image, one.kind) == begun), None)


def _artifact_changes(desired: Fleet, actual: Fleet, wanted: list[Instance]) -> Iterator[Change]:
    needed = {(one.host, device.properties.get("volume")) for one in wanted for device in one.devices}
    for artifact in desired.artifacts:
        host = actual.hosts.get(artifact.host)
        if (artifact.host, artifact.volume) in needed and (host is None or artifact.volume not in host.volumes):
            begun = "; goes on where an earlier run stopped" if _begun(artifact, actual) else ""
            yield Change("build", artifact.name, None, artifact, f"not on host {artifact.host} yet{begun}")


def _instance_changes(after: Instance, before: Instance | None, inside: Inside, wishes: Wishes) -> Iterator[Change]:
    if before is None:
        yield Change("create", after.name, None, after, "in the file, not on the host")
        return
    differing = differences(before, after)
    if after.name in wishes.replace:
        yield Change("replace", after.name, before, after, "its replacement was asked for")
        return
    if AS_MADE.intersection(differing) or _shrinks(before, after):
        what = "its disk cannot become smaller" if _shrinks(before, after) else _differ(differing)
        yield Change("replace", after.name, before, after, what)
        return
    if before.status is Status.FROZEN:
        # Resumed before anything else: nothing can be asked of it, or done in it, while it is frozen.
        yield Change("start", after.name, before, before if differing else after, RESUMED)
    if differing:
        running = replace(before, status=Status.RUNNING) if before.status is Status.FROZEN else before
        yield Change("update", after.name, running, after, _words(differing, running))
    if before.status is Status.FROZEN:
        return
    if before.status is not Status.RUNNING:
        yield Change("start", after.name, before, after, f"is {before.status}")
        return
    for one in after.roles:
        reasons = [*inside.reasons.get(one.address, ()), *_exchanged(one, before, after)]
        if reasons:
            yield Change("configure", one.address, None, one, "; ".join(reasons))


def _shrinks(before: Instance, after: Instance) -> bool:
    """Whether the disk would lose room: what lies there may not fit."""
    return after.disk is not None and before.disk is not None and after.disk < before.disk


def _words(differing: Mapping[str, tuple[Any, Any]], before: Instance) -> str:
    restart = before.status is Status.RUNNING and needs_restart(differing)
    return _differ(differing) + (": it is restarted" if restart else "")


def _differ(names: Mapping[str, object]) -> str:
    many = len(names) > 1 or list(names) in (["devices"], ["mounts"], ["host devices"], ["features"], ["tags"])
    return f"{', '.join(names)} {'differ' if many else 'differs'} from the file"


def _exchanged(service: Service, before: Instance, after: Instance) -> Iterator[str]:
    """Another artifact in the place of one that was there: whatever uses it has to be started again."""
    if service is after.base:
        return
    old = {one.properties["path"]: one.properties["volume"] for one in before.devices if one.kind == "volume"}
    new = {one.properties["path"]: one.properties["volume"] for one in after.devices if one.kind == "volume"}
    for path in sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path)):
        yield f"{path} is exchanged"
