"""A plan and its changes, as they are handed between rooms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from provisioner.values.address import Address
from provisioner.values.errors import PreflightError, joined
from provisioner.values.state import Artifact, Device, Instance, Service, Status

Action = Literal["create", "start", "stop", "update", "replace", "delete", "build", "configure", "rollback", "adopt"]
Thing = Instance | Artifact | Service
_OF_ARTIFACTS = ("host", "digest", "mounted_at")

AS_MADE = frozenset({"host", "image", "vmid", "storage", "unprivileged"})
"""What is decided when a container is made: another one means another container."""
AT_NEXT_START = frozenset({"nesting", "features"})
"""What a running container takes up when it is started again."""
DETACHED_AT_NEXT_START = ("mounts", "host devices")
"""Of these a running container takes up what is added, and lets go of the rest when it is started again."""
RESUMED = "is frozen: it is resumed where it was"
COMPARED = ("host", "image", "cpu", "memory", "disk", "nesting", "devices", "reaches")
ROOM = frozenset({"memory", "disk", "mounts"})
"""Things of which a host has only so much."""


def setting_name(name: str) -> str:
    """A setting as it is shown beside attributes: one that bears the name of an attribute is told apart from it."""
    return f"host {name}" if name in COMPARED else name


def differences(before: Instance | None, after: Instance | None) -> dict[str, tuple[Any, Any]]:
    """The attributes and settings in which two states of a container differ, each as (before, after).

    Settings count as far as ``after`` has them; without it, as far as ``before`` does.
    """
    differing = _differing_attributes(before, after, COMPARED)
    decided = after or before
    if decided is None:
        return differing
    for name in sorted(decided.settings):
        old = before.settings.get(name) if before else None
        new = after.settings.get(name) if after else None
        if old != new:
            differing[setting_name(name)] = (old, new)
    return differing


def _differing_attributes(
    before: Thing | None, after: Thing | None, names: Iterable[str]
) -> dict[str, tuple[Any, Any]]:
    """The attributes of these names that differ, each as (before, after); those of nothing are None."""
    differing = dict[str, tuple[Any, Any]]()
    for name in names:
        old, new = getattr(before, name, None), getattr(after, name, None)
        if old != new:
            differing[name] = (old, new)
    return differing


def needs_restart(differing: Mapping[str, tuple[Any, Any]]) -> bool:
    """Whether a running container takes up these differences only when it is started again."""
    if not AT_NEXT_START.isdisjoint(differing):
        return True
    before, after = differing.get("devices", (None, None))
    if _lent(before) != _lent(after):
        return True  # a driver's user space is mounted when a container starts
    for name in DETACHED_AT_NEXT_START:
        before, after = differing.get(name, (None, None))
        if _is_detached(before, after):
            return True
    return False


def _lent(devices: Iterable[Device] | None) -> list[Mapping[str, str]]:
    """The properties of the devices with which a driver's user space is lent."""
    if devices is None:
        return []
    return [device.properties for device in devices if "runtime" in device.properties]


def _is_detached(before: Iterable[Mapping[str, Any]] | None, after: Iterable[Mapping[str, Any]] | None) -> bool:
    """Whether one of the entries goes away or becomes another one; a disk grows while it is used."""
    remaining = _without_sizes(after)
    return any(entry not in remaining for entry in _without_sizes(before))


def _without_sizes(entries: Iterable[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """The entries as they count for a restart: a disk grows while it is used."""
    without_sizes = list[dict[str, Any]]()
    for entry in entries or ():
        properties = dict(entry)
        properties.pop("size", None)
        without_sizes.append(properties)
    return without_sizes


@dataclass(frozen=True, slots=True)
class Change:
    """One step: what is done to which container, artifact or service, from what to what, and why."""

    action: Action
    target: str
    before: Thing | None
    after: Thing | None
    reason: str
    start_s: float = 0.0
    """How long the slowest of its last starts took, of a service; 0 where none was measured."""
    kept_out: tuple[Address, ...] = ()
    """The other services of its container that people are kept out of, as all of it may go back to where it was."""

    @property
    def container(self) -> str:
        """The name of the container that it is done to."""
        return Address(self.target).container

    @property
    def takes_room(self) -> bool:
        """Return whether a container is made, or its memory or its disks are changed."""
        return self.action in ("create", "replace") or not ROOM.isdisjoint(self.attributes())

    @property
    def disk_growth(self) -> int:
        """By how many bytes the container's own disk is larger than before."""
        sizes = (getattr(state, "disk", None) or 0 for state in (self.after, self.before))
        return next(sizes) - next(sizes)

    def attributes(self) -> dict[str, tuple[Any, Any]]:
        """The attributes that differ, each as (before, after); all of them for a creation or a deletion."""
        thing = self.before or self.after
        if isinstance(thing, Service):
            return {}
        if isinstance(thing, Instance):
            return differences(self.before, self.after)  # type: ignore[arg-type]  # both are of one kind
        return _differing_attributes(self.before, self.after, _OF_ARTIFACTS)

    @property
    def meanwhile(self) -> str:
        """What requests to the services meet that it touches, as a sentence's end; empty where none is touched."""
        pages = ", ".join(self.kept_out)
        shown = f"{pages} shows people a page until it is proved, as its container may go back" if pages else ""
        return "; ".join(filter(None, (self._of_what_is_touched(), shown)))

    def _of_what_is_touched(self) -> str:
        if self.action == "configure" and isinstance(self.after, Service):
            return _while_configured(self.after, self.start_s)
        ran = isinstance(self.before, Instance) and self.before.status is Status.RUNNING
        if not ran or not isinstance(self.after, Instance):
            return ""
        is_stopped = self.action == "replace" or (self.action == "update" and needs_restart(self.attributes()))
        return _while_stopped(self.after) if is_stopped else ""


def _while_configured(service: Service, start_s: float) -> str:
    if service.beside:
        return "nobody waits: a changed one is started beside it and takes over"
    longest = service.variables.get(f"{service.role}_queue")
    if service.behind and not longest:
        return "a page says meanwhile that it is not there"
    if service.behind:
        likely = f"about {max(start_s, 1):.0f} s by its last starts, and " if start_s else "for "
        waits = f"requests wait meanwhile, {likely}up to {longest}"
        taken_over = "a changed one takes over beside it where that is possible; if not, "
        return f"{taken_over}{waits}" if service.beside is None else waits
    return "requests are refused meanwhile" if service.health else ""


def _while_stopped(container: Instance) -> str:
    asked = [service for service in container.services if service.health]
    if not asked:
        return ""
    if any(service.behind for service in asked):
        return "requests are refused meanwhile: the switch stops with its container"
    return "requests are refused meanwhile"


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

    def growing_on(self, host: str) -> list[Change]:
        """Return the changes for which containers of that host take room there."""
        return [change for change in self.changes if change.takes_room and getattr(change.after, "host", "") == host]

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
    """What a look into the running containers gave: ``reasons`` to run a role by address, and ``leftovers``.

    ``starts``: seconds that the slowest of a service's last starts took, where one was measured. ``closable``: the
    services that people are kept out of while their container may go back.
    """

    reasons: Mapping[Address, tuple[str, ...]] = field(default_factory=dict)
    leftovers: tuple[Address, ...] = ()
    starts: Mapping[Address, float] = field(default_factory=dict)
    closable: frozenset[Address] = frozenset()


AS_WRITTEN = Wishes()
"""No wish beside the file."""
AS_PROVED = Inside()
"""Nothing inside has to be run again."""
