"""Demands of a plan on a node: storages, bridges, pools, images, numbers, root@pam itself. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from provisioner.providers.proxmox import rights, root_only
from provisioner.providers.proxmox.rights import Place
from provisioner.values.plan import Change, Thing
from provisioner.values.state import Artifact, Instance

_TO_BE_MADE = ("create", "replace")
_NEEDS_DEVICES = (*_TO_BE_MADE, "start", "update")
_NEEDS_INSIDE = (*_TO_BE_MADE, "start", "update", "adopt")

Users = Mapping[str, Sequence[str]]
"""The containers that ask for a thing of the node, by the thing's name."""


def made(changes: Iterable[Change]) -> list[Instance]:
    """The containers that are made anew."""
    containers = []
    for change in changes:
        after = change.after
        if change.action in _TO_BE_MADE and isinstance(after, Instance):
            containers.append(after)
    return containers


def updates(changes: Iterable[Change]) -> Iterator[tuple[Change, Instance, Instance]]:
    """The containers that are changed: the change, before, after."""
    for change in changes:
        before, after = change.before, change.after
        if change.action == "update" and isinstance(before, Instance) and isinstance(after, Instance):
            yield change, before, after


def _updates_of(changes: Iterable[Change], *attributes: str) -> Iterator[tuple[Instance, Instance]]:
    """The containers of which one of the attributes changes: before, after."""
    for change, before, after in updates(changes):
        if change.attributes().keys() & set(attributes):
            yield before, after


def storages(changes: Sequence[Change], place: Place) -> Users:
    """The storages that disks are made on; "" where the host has none to be used by default."""
    users: dict[str, list[str]] = defaultdict(list)
    for container in made(changes):
        for name in dict.fromkeys(rights.storages(container, place)):
            users[name].append(container.name)
    for before, after in _updates_of(changes, "mounts", "devices"):
        for name in dict.fromkeys(rights.storages(after, place, before)):
            users[name].append(after.name)
    for artifact in _built(changes):
        users[place.storage].append(artifact.name)
    return users


def bridges(changes: Sequence[Change], place: Place) -> Users:
    """The bridges that network cards are put on."""
    users: dict[str, list[str]] = defaultdict(list)
    changed = [after for _, after in _updates_of(changes, "network")]
    for container in (*made(changes), *changed):
        network = container.settings.get("network", {})
        bridge = network.get("bridge") or place.bridge
        users[bridge].append(container.name)
    for artifact in _built(changes):
        users[place.bridge].append(artifact.name)
    return users


def pools(changes: Sequence[Change], place: Place) -> Users:
    """The pools that containers are put into."""
    users: dict[str, list[str]] = defaultdict(list)
    moved = [after for _, after in _updates_of(changes, "pool")]
    for container in (*made(changes), *moved):
        pool = str(container.settings.get("pool", place.pool))
        users[pool].append(container.name)
    for artifact in _built(changes):
        users[place.pool].append(artifact.name)
    users.pop("", None)  # a container without a pool
    return users


def images(changes: Iterable[Change]) -> Users:
    """The images that containers are made of."""
    users: dict[str, list[str]] = defaultdict(list)
    for container in made(changes):
        users[container.image].append(container.name)
    for artifact in _built(changes):
        users[artifact.image].append(artifact.name)
    return users


def device_files(changes: Iterable[Change]) -> Users:
    """The device files of the node that containers get; each has to be there at every start."""
    users: dict[str, list[str]] = defaultdict(list)
    for change in changes:
        if change.action not in _NEEDS_DEVICES or not isinstance(change.after, Instance):
            continue
        for device in change.after.settings.get("devices", ()):
            containers = users[str(device["path"])]
            if change.container not in containers:
                containers.append(change.container)
    return users


def numbers(changes: Iterable[Change]) -> dict[int, str]:
    """The numbers that are asked for, and for which container; a replacement may have its own again."""
    targets: dict[int, str] = {}
    for change in changes:
        if change.action not in _TO_BE_MADE:
            continue
        wanted = _number_of(change.after)
        own = _number_of(change.before)
        if wanted is not None and wanted != own:
            targets[wanted] = change.target
    return targets


def numbers_again(changes: Iterable[Change]) -> list[int]:
    """The numbers of containers that are made anew and are to have them again, because the file says so."""
    numbers_kept = []
    for change in changes:
        if change.action != "replace":
            continue
        wanted = _number_of(change.after)
        own = _number_of(change.before)
        if wanted is not None and wanted == own:
            numbers_kept.append(wanted)
    return numbers_kept


def _number_of(thing: Thing | None) -> int | None:
    """The number of a container, or the one that its file asks for; None where there is none."""
    if not isinstance(thing, Instance):
        return None
    number = thing.settings.get("vmid")
    return None if number is None else int(number)


def makes(changes: Sequence[Change]) -> bool:
    """Whether any container is made, be it one that only builds something."""
    return bool(made(changes) or _built(changes))


def for_root(change: Change) -> tuple[str, ...]:
    """The settings of a change that only root@pam itself may write, by their names in the file."""
    if not isinstance(change.after, Instance):
        return ()
    if change.action in _TO_BE_MADE:
        return root_only.subjects(None, change.after)
    if change.action == "update":
        before = change.before if isinstance(change.before, Instance) else None
        return root_only.subjects(before, change.after)
    return ()


def inside(changes: Iterable[Change]) -> list[str]:
    """The targets inside of which something has to be done."""
    targets = dict.fromkeys(change.target for change in changes if _needs_inside(change))
    return list(targets)


def _needs_inside(change: Change) -> bool:
    if change.action == "build":
        return True
    if change.action not in _NEEDS_INSIDE or not isinstance(change.after, Instance):
        return False
    return bool(change.after.roles or change.after.devices)


def _built(changes: Iterable[Change]) -> list[Artifact]:
    artifacts = []
    for change in changes:
        after = change.after
        if change.action == "build" and isinstance(after, Artifact):
            artifacts.append(after)
    return artifacts
