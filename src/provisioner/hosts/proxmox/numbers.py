"""Numbers for new containers: none that a guest has, and none under which disks of somebody else lie.

Proxmox gives out a number as soon as no configuration has it. Disks that bear it may lie there all the same, made by
hand or left by a guest that went, and whatever is done to a container of that number later may reach them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from provisioner.hosts.proxmox import translate
from provisioner.hosts.proxmox.failures import PveError, UnreachableError
from provisioner.hosts.proxmox.guest import NOW, options_of
from provisioner.values.errors import ProviderError

if TYPE_CHECKING:
    from provisioner.hosts.proxmox.api import Client

IMAGES, CONTAINERS = "images", "rootdir"
"""What Proxmox calls a disk whose number no container has, and one whose number a container has."""
LAST = 999_999_999


@dataclass(frozen=True, slots=True)
class Disks:
    """The disks of one kind on a node's storages, by the number that they bear.

    ``unlisted``: the storages of which that is not known, each with the reason.
    """

    by_number: Mapping[int, Sequence[str]] = field(default_factory=dict)
    unlisted: tuple[str, ...] = ()


def disks_without_guest(client: Client) -> Disks:
    """The disks whose number no container of the cluster has."""
    return _disks(client, IMAGES)


def disks_of_guests(client: Client) -> Disks:
    """The disks whose number a container of the cluster has."""
    return _disks(client, CONTAINERS)


def named_by_container(client: Client, vmid: int) -> frozenset[str]:
    """Every disk that a container names: now, after its next start, and in its snapshots."""
    path = ("nodes", client.node, "lxc", vmid, "config")
    configs = client.find(*path), client.find(*path, current=True)
    now = [translate.volumes_named(options_of(config)) for config in configs if config is not None]
    return frozenset[str]().union(*now, *named_by_snapshots(client, vmid).values())


def named_by_snapshots(client: Client, vmid: int) -> dict[str, frozenset[str]]:
    """The disks that each snapshot of a container names."""
    path = ("nodes", client.node, "lxc", vmid, "snapshot")
    names = [str(snapshot["name"]) for snapshot in client.get(*path) if snapshot["name"] != NOW]
    configs = client.many([partial(client.get, *path, name, "config") for name in names])
    disks: dict[str, frozenset[str]] = {}
    for name, config in zip(names, configs, strict=True):
        disks[name] = translate.volumes_named(options_of(config))
    return disks


def is_taken(client: Client, number: int) -> bool:
    """Whether a guest of the cluster has the number."""
    try:
        client.get("cluster", "nextid", vmid=number)
    except PveError as error:
        if error.status != HTTPStatus.BAD_REQUEST or "already exists" not in error.errors.get("vmid", ""):
            raise
        return True
    return False


def next_free(client: Client, occupied: Mapping[int, Sequence[str]], skip: Callable[[int], None]) -> int:
    """The lowest number that Proxmox offers, or the first one above it, under which no disk lies.

    ``skip`` is told each number that is passed over for its disks.
    """
    number = int(client.get("cluster", "nextid"))
    while number in occupied:
        skip(number)
        number += 1
        while number < LAST and is_taken(client, number):
            number += 1
    return number


def refusal(name: str, number: int, disks: Sequence[str]) -> ProviderError:
    """The error for a container whose file asks for a number under which disks lie."""
    what, hint = words(number, disks)
    return ProviderError(f"Unable to create container {name}", details=f"{what[0].upper()}{what[1:]}", resolution=hint)


def words(number: int, disks: Sequence[str]) -> tuple[str, str]:
    """That disks lie under a number, and what to do about it."""
    commands = "; ".join(f"pvesm free {disk}" for disk in disks)
    hint = f"Write another vmid:, or none. Where nobody needs them any more, on the node: {commands}"
    return f"disks that are not its own lie under number {number}: {', '.join(disks)}", hint


def _disks(client: Client, kind: str) -> Disks:
    to_list, unlisted = _storages(client, kind)
    answers = client.many([partial(_content, client, name, kind) for name in to_list])
    by_number: dict[int, list[str]] = {}
    for name, answer in zip(to_list, answers, strict=True):
        if isinstance(answer, PveError):
            unlisted.append(f"{name} ({answer.message.strip()})")
            continue
        for disk in answer:
            if disk.get("vmid"):
                by_number.setdefault(int(disk["vmid"]), []).append(str(disk["volid"]))
    for disks in by_number.values():
        disks.sort()
    return Disks(by_number, tuple(sorted(unlisted)))


def _storages(client: Client, kind: str) -> tuple[list[str], list[str]]:
    """The storages whose disks of a kind can be listed, and those of which they cannot, each with the reason."""
    to_list: list[str] = []
    unlisted: list[str] = []
    for storage in client.get("nodes", client.node, "storage", enabled=True):
        name = str(storage["storage"])
        contents = str(storage.get("content", "")).split(",")
        holds_disks = IMAGES in contents or CONTAINERS in contents
        if not holds_disks or not storage.get("enabled", 1):
            continue
        if not storage.get("active", 1):
            unlisted.append(f"{name} (it is not there)")
        elif kind in contents:
            to_list.append(name)
        elif kind == IMAGES:
            unlisted.append(f"{name} (without {IMAGES} in its content Proxmox lists no disk that has no guest)")
    return to_list, unlisted


def _content(client: Client, storage: str, kind: str) -> list[dict[str, Any]] | PveError:
    """What a storage holds of a kind; the error where it cannot be listed: one that fails must not stop all others."""
    try:
        found: list[dict[str, Any]] = client.get("nodes", client.node, "storage", storage, "content", content=kind)
    except UnreachableError:
        raise
    except PveError as error:
        return error
    return found
