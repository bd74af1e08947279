"""What a plan asks of a node: storages, bridges, pools, images, numbers, room, root's own hand. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from provisioner.plan import Change
from provisioner.providers.proxmox import rights, root_only
from provisioner.providers.proxmox.rights import Place
from provisioner.providers.proxmox.translate import DEFAULT_DISK
from provisioner.state import Artifact, Instance

_TO_BE_MADE = ("create", "replace")
_NEEDS_INSIDE = (*_TO_BE_MADE, "start", "update", "adopt")

Users = Mapping[str, Sequence[str]]
"""What is asked for, and for which containers."""


def made(changes: Iterable[Change]) -> list[Instance]:
    """The containers that are made anew."""
    return [one.after for one in changes if one.action in _TO_BE_MADE and isinstance(one.after, Instance)]


def updates(changes: Iterable[Change]) -> Iterator[tuple[Change, Instance, Instance]]:
    """The containers that are changed: the change, before, after."""
    for one in changes:
        if one.action == "update" and isinstance(one.before, Instance) and isinstance(one.after, Instance):
            yield one, one.before, one.after


def storages(changes: Sequence[Change], place: Place) -> Users:
    """The storages that disks are made on; "" where the host has none to be used by default."""
    users: dict[str, list[str]] = defaultdict(list)
    touched = [
        (after, before) for one, before, after in updates(changes) if one.attributes().keys() & {"mounts", "devices"}
    ]
    for after, before in (*((one, None) for one in made(changes)), *touched):
        for name in dict.fromkeys(rights.storages(after, place, before)):
            users[name].append(after.name)
    for artifact in _built(changes):
        users[place.storage].append(artifact.name)
    return users


def bridges(changes: Sequence[Change], place: Place) -> Users:
    """The bridges that network cards are put on."""
    users: dict[str, list[str]] = defaultdict(list)
    changed = [after for one, _, after in updates(changes) if "network" in one.attributes()]
    for one in (*made(changes), *changed):
        users[one.settings.get("network", {}).get("bridge") or place.bridge].append(one.name)
    for artifact in _built(changes):
        users[place.bridge].append(artifact.name)
    return users


def pools(changes: Sequence[Change], place: Place) -> Users:
    """The pools that containers are put into."""
    users: dict[str, list[str]] = defaultdict(list)
    moved = [after for one, _, after in updates(changes) if "pool" in one.attributes()]
    for one in (*made(changes), *moved):
        users[str(one.settings.get("pool", place.pool))].append(one.name)
    for artifact in _built(changes):
        users[place.pool].append(artifact.name)
    return {pool: whose for pool, whose in users.items() if pool}


def images(changes: Iterable[Change]) -> Users:
    """The images that containers are made of."""
    users: dict[str, list[str]] = defaultdict(list)
    for one in made(changes):
        users[one.image].append(one.name)
    for artifact in _built(changes):
        users[artifact.image].append(artifact.name)
    return users


def device_files(changes: Iterable[Change]) -> Users:
    """The device files of the node that containers get; each has to be there at every start."""
    users: dict[str, list[str]] = defaultdict(list)
    for one in changes:
        if one.action in (*_TO_BE_MADE, "update", "start") and isinstance(one.after, Instance):
            for device in one.after.settings.get("devices", ()):
                users[str(device["path"])].append(one.container)
    return {path: list(dict.fromkeys(whose)) for path, whose in users.items()}


def numbers(changes: Iterable[Change]) -> dict[int, str]:
    """The numbers that are asked for, and for which container; a replacement may have its own again."""
    found: dict[int, str] = {}
    for one in changes:
        if one.action in _TO_BE_MADE and isinstance(one.after, Instance):
            wanted = one.after.settings.get("vmid")
            own = one.before.settings.get("vmid") if isinstance(one.before, Instance) else None
            if wanted is not None and wanted != own:
                found[int(wanted)] = one.target
    return found


def numbers_again(changes: Iterable[Change]) -> list[int]:
    """The numbers of containers that are made anew and are to have them again, because the file says so."""
    found = []
    for change in changes:
        if change.action == "replace" and isinstance(change.after, Instance) and isinstance(change.before, Instance):
            number = change.after.settings.get("vmid")
            if number is not None and number == change.before.settings.get("vmid"):
                found.append(int(number))
    return found


def makes(changes: Sequence[Change]) -> bool:
    """Whether any container is made, be it one that only builds something."""
    return bool(made(changes) or _built(changes))


def for_root(change: Change) -> tuple[str, ...]:
    """What of a change only root@pam itself may write, by the file's words."""
    if not isinstance(change.after, Instance) or change.action not in (*_TO_BE_MADE, "update"):
        return ()
    before = change.before if change.action == "update" and isinstance(change.before, Instance) else None
    return root_only.subjects(before, change.after)


def inside(changes: Iterable[Change]) -> list[str]:
    """What something has to be done inside of."""
    found = [
        one.target
        for one in changes
        if one.action == "build"
        or (one.action in _NEEDS_INSIDE and isinstance(one.after, Instance) and (one.after.roles or one.after.devices))
    ]
    return list(dict.fromkeys(found))


def room(changes: Sequence[Change], place: Place) -> Mapping[str, int]:
    """How many bytes are made on each storage, without the copies of artifacts, whose sizes are known later."""
    found: dict[str, int] = defaultdict(int)
    for one in made(changes):
        own = str(one.settings.get("storage") or place.storage)
        found[own] += one.disk or DEFAULT_DISK
        for mount in one.settings.get("mounts", ()):
            found[str(mount.get("storage") or own)] += int(mount.get("size") or 0)
    for _, before, after in updates(changes):
        own = str(before.settings.get("storage") or place.storage)
        found[own] += max(0, (after.disk or 0) - (before.disk or DEFAULT_DISK))
    return found


def _built(changes: Iterable[Change]) -> list[Artifact]:
    return [one.after for one in changes if one.action == "build" and isinstance(one.after, Artifact)]
