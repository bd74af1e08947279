"""``make_plan``: what has to change so that the actual lab becomes the desired one. A pure comparison."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from provisioner.errors import PreflightError
from provisioner.state import Artifact, Fleet, Instance, InstanceKind, Status

Action = Literal["create", "start", "stop", "update", "replace", "delete", "build"]

IN_PLACE = frozenset({"cpu", "memory", "disk", "nesting", "devices"})
COMPARED = ("host", "image", "cpu", "memory", "disk", "nesting", "devices")


@dataclass(frozen=True, slots=True)
class Change:
    """One step: what is done to which container or artifact, from what to what, and why."""

    action: Action
    target: str
    before: Instance | Artifact | None
    after: Instance | Artifact | None
    reason: str

    def attributes(self) -> dict[str, tuple[Any, Any]]:
        """The attributes that differ, each as (before, after); all of them for a creation or a deletion."""
        names = COMPARED if isinstance(self.before or self.after, Instance) else ("host", "digest", "path")
        pairs = {name: (getattr(self.before, name, None), getattr(self.after, name, None)) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


@dataclass(frozen=True, slots=True)
class Plan:
    """All changes in the order in which they are applied, and what is only reported."""

    changes: tuple[Change, ...] = ()
    orphans: tuple[Instance, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True when nothing has to be created, changed, started or deleted."""
        return not self.changes

    def of(self, *actions: Action) -> tuple[Change, ...]:
        """The changes with one of these actions."""
        return tuple(change for change in self.changes if change.action in actions)


def make_plan(desired: Fleet, actual: Fleet, *, targets: Iterable[str] = ()) -> Plan:
    """The changes that lead from ``actual`` to ``desired``, limited to ``targets`` (container names) when given.

    Raises ``PreflightError`` when a wanted name belongs to a stranger or a wanted image does not exist.
    """
    limit = frozenset(targets)
    wanted = [one for one in desired.instances if not limit or one.name in limit]
    _refuse_impossible(wanted, actual)
    leftovers = [one for one in actual.instances if one.kind is InstanceKind.BUILDER]
    changes = [
        *(Change("delete", one.name, one, None, "left over from an interrupted build") for one in leftovers),
        *_artifact_changes(desired, actual, wanted),
        *(change for one in wanted for change in _instance_changes(one, actual.instance(one.name))),
    ]
    names = {one.name for one in desired.instances}
    orphans = tuple(one for one in actual.instances if one.kind is InstanceKind.SERVING and one.name not in names)
    return Plan(tuple(changes), orphans)


def make_destroy_plan(actual: Fleet, *, targets: Iterable[str] = ()) -> Plan:
    """The deletion of everything that bears the lab's mark (orphans too), or of ``targets`` only."""
    limit = frozenset(targets)
    doomed = [one for one in actual.instances if not limit or one.name in limit]
    return Plan(tuple(Change("delete", one.name, one, None, "destroy was asked for") for one in doomed))


def make_stop_plan(actual: Fleet, *, targets: Iterable[str] = ()) -> Plan:
    """The stop of every running container of the lab, or of ``targets`` only."""
    limit = frozenset(targets)
    running = [one for one in actual.instances if one.status is not Status.STOPPED and (not limit or one.name in limit)]
    return Plan(tuple(Change("stop", one.name, one, one, "down was asked for") for one in running))


def _refuse_impossible(wanted: list[Instance], actual: Fleet) -> None:
    taken = [one for one in wanted if one.host in actual.hosts and one.name in actual.hosts[one.host].strangers]
    if taken:
        raise PreflightError(
            f"Unable to plan container {', '.join(one.name for one in taken)}: the name is taken",
            details="; ".join(f"host {one.host} has a container {one.name} that is not of this lab" for one in taken),
            resolution="Choose another name in the file, or rename the other container; provision never touches it.",
        )
    missing = [
        one
        for one in wanted
        if one.host in actual.hosts
        and actual.instance(one.name) is None
        and one.image not in actual.hosts[one.host].images
    ]
    if missing:
        raise PreflightError(
            f"Unable to plan container {missing[0].name}: image {missing[0].image} not found on host {missing[0].host}",
            details="Images there: " + (", ".join(sorted(actual.hosts[missing[0].host].images)) or "none"),
            resolution=f"Run: provision host prepare --image {missing[0].image}",
        )


def _artifact_changes(desired: Fleet, actual: Fleet, wanted: list[Instance]) -> Iterator[Change]:
    needed = {(one.host, device.properties.get("volume")) for one in wanted for device in one.devices}
    for artifact in desired.artifacts:
        host = actual.hosts.get(artifact.host)
        if (artifact.host, artifact.volume) in needed and (host is None or artifact.volume not in host.volumes):
            yield Change("build", artifact.name, None, artifact, f"not on host {artifact.host} yet")


def _instance_changes(after: Instance, before: Instance | None) -> Iterator[Change]:
    if before is None:
        yield Change("create", after.name, None, after, "in the file, not on the host")
        return
    differing = [name for name in COMPARED if getattr(before, name) != getattr(after, name)]
    if differing:
        action: Action = "update" if IN_PLACE.issuperset(differing) else "replace"
        yield Change(action, after.name, before, after, f"{', '.join(differing)} changed in the file")
    if before.status is not Status.RUNNING:
        yield Change("start", after.name, before, after, f"is {before.status}")
