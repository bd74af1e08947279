"""Privileges: which of them a plan needs on which path, by PVE's own checks, and which of those are missing.

What a token may do is asked for path by path: what is granted on one path replaces what came down from those above it,
and the members of a pool get its grants, too; so nothing can be concluded from the list of all grants.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from provisioner.providers.proxmox import root_only
from provisioner.providers.proxmox.root_only import ROOT
from provisioner.values.plan import Change, needs_restart, setting_name
from provisioner.values.state import Artifact, Instance, Status

if TYPE_CHECKING:  # what is needed is known without a connection
    from provisioner.providers.proxmox.access import Access
    from provisioner.providers.proxmox.client import Client

ZONE = "/sdn/zones/localnetwork"
NEW = "/vms"
"""The path of a container that is still to be made, whose number is not known yet."""
READ_TEMPLATE = ("Datastore.AllocateSpace", "Datastore.Audit", "Datastore.Allocate")
LIST_DISKS = ("Datastore.Audit", "Datastore.Allocate")
TO_CREATE = (
    "VM.Allocate",
    "VM.Config.CPU",
    "VM.Config.Disk",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
    "VM.PowerMgmt",
)
TO_KEEP = ("VM.Snapshot", "VM.Clone")
GO_BACK = ("VM.Snapshot", "VM.Snapshot.Rollback")
_FOR_ATTRIBUTE: Mapping[str, str] = {
    "cpu": "VM.Config.CPU",
    "memory": "VM.Config.Memory",
    "swap": "VM.Config.Memory",
    "disk": "VM.Config.Disk",
    "devices": "VM.Config.Disk",
    "mounts": "VM.Config.Disk",
    "network": "VM.Config.Network",
    "features": "VM.Allocate",
    "pool": "VM.Allocate",
}
BY_ROOT = setting_name("devices")
_FOR_ACTION: Mapping[str, tuple[str, ...]] = {
    "start": ("VM.PowerMgmt",),
    "stop": ("VM.PowerMgmt",),
    "delete": ("VM.Allocate", "VM.PowerMgmt"),
    "rollback": ("VM.PowerMgmt",),
    "adopt": ("VM.Config.Options",),
}


@dataclass(frozen=True, slots=True)
class Right:
    """One of ``privileges`` on ``path``; on the pool ``pool`` it would do as well."""

    path: str
    privileges: tuple[str, ...]
    pool: str = ""

    def __str__(self) -> str:
        return f"{' or '.join(self.privileges)} on {self.path}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where things are made unless they say otherwise; ``downloads``: images whose template is not there yet."""

    storage: str
    templates: str
    bridge: str
    pool: str = ""
    downloads: frozenset[str] = frozenset()
    vnets: frozenset[str] = frozenset()
    """Bridges that belong to a zone of PVE's own network: they are listed for those only who may use them."""


def holder(access: Access) -> str:
    """Who calls, in Proxmox' words: "token root@pam!lab", "user penny@pve"."""
    return f"token {access.user}!{access.token_id}" if access.token_id else f"user {access.user}"


def may_all(access: Access) -> bool:
    """Whether nothing has to be asked: root@pam in person."""
    return access.user == ROOT and access.token_id is None


def of_every_plan(lab: str = "") -> tuple[Right, ...]:
    """What each run needs: to see the cluster, and to take the lab's lock, which is a pool."""
    lock = f"/pool/provisioner-lock-{lab}-1" if lab else "/pool"
    return (Right("/", ("Sys.Audit",)), Right(lock, ("Pool.Allocate",)), Right(lock, ("Pool.Audit",)))


def of_change(change: Change, place: Place) -> Iterator[Right]:
    """What one change needs."""
    before, after = change.before, change.after
    if isinstance(after, Artifact):
        builder = Instance(after.builder, after.host, "", after.image)
        yield from _of_creation(builder, place)
    elif change.action in ("create", "replace") and isinstance(after, Instance):
        yield from _of_creation(after, place)
    elif change.action == "update" and isinstance(before, Instance) and isinstance(after, Instance):
        yield from _of_update(change, before, after, place)
    else:
        container = before or after
        if isinstance(container, Instance):
            yield from _of_action(change.action, container)


def _of_action(action: str, container: Instance) -> Iterator[Right]:
    """What something needs that is done to a container as it is."""
    if action == "rollback":
        yield replace(_of_guest(container, ""), privileges=GO_BACK)
    for privilege in _FOR_ACTION.get(action, ()):
        yield _of_guest(container, privilege)


def of_whole_life(place: Place) -> tuple[Right, ...]:
    """What everything that can be done with a container needs."""
    any_container = Instance("", "", "", "")
    for_snapshots = [Right(NEW, (privilege,), place.pool) for privilege in TO_KEEP]
    for_download = Right(_storage_path(place.templates), ("Datastore.AllocateTemplate",))
    return (*_of_creation(any_container, place), *for_snapshots, for_download, *to_list_disks([place.storage]))


def to_list_disks(names: Iterable[str]) -> tuple[Right, ...]:
    """What is needed to see all disks on these storages, and that there are no other storages.

    Proxmox leaves out of a list what whoever asks may not see, and says nothing of it.
    """
    rights = [Right(_storage_path(name), LIST_DISKS) for name in ("", *names)]
    return (*rights, Right(NEW, ("VM.Config.Disk",)))


def missing(client: Client, rights: Iterable[Right], next_vmid: str = "") -> tuple[Right, ...]:
    """Those of ``rights`` that whoever calls has not; ``next_vmid`` is asked about for what is still to be made."""
    if may_all(client.access):
        return ()
    wanted = list(dict.fromkeys(rights))
    path_of_new = f"{NEW}/{next_vmid}" if next_vmid else NEW
    paths: set[str] = set()
    for right in wanted:
        paths.update(_paths(right, path_of_new))
    privileges = _privileges_on(client, sorted(paths))
    lacking = []
    for right in wanted:
        held = frozenset[str]().union(*(privileges[path] for path in _paths(right, path_of_new)))
        if held.isdisjoint(right.privileges):
            lacking.append(right)
    return tuple(lacking)


def _privileges_on(client: Client, paths: Sequence[str]) -> dict[str, frozenset[str]]:
    """The privileges that whoever calls has, by path."""
    answers = client.many([partial(client.get, "access", "permissions", path=path) for path in paths])
    privileges: dict[str, frozenset[str]] = {}
    for path, answer in zip(paths, answers, strict=True):
        privileges[path] = frozenset(answer.get(path) or ())
    return privileges


def by_path(rights: Iterable[Right]) -> dict[str, str]:
    """The privileges in words, by path: ``/vms`` to "VM.Allocate, VM.PowerMgmt"."""
    words: dict[str, list[str]] = {}
    for right in rights:
        words.setdefault(right.path, []).append(" or ".join(right.privileges))
    return {path: ", ".join(words[path]) for path in sorted(words)}


def bridge_path(network: Mapping[str, Any], bridge: str) -> str:
    """Where the right to use a network card's bridge is granted; with a VLAN, that VLAN of it is enough."""
    path = f"{ZONE}/{network.get('bridge') or bridge}"
    vlan = network.get("vlan")
    return f"{path}/{vlan}" if vlan else path


def storages(after: Instance, place: Place, before: Instance | None = None) -> Iterator[str]:
    """The storages that the container's disks are on, or will be; "" where there is none to be used by default."""
    before_settings = before.settings if before else {}
    own = after.settings.get("storage") or before_settings.get("storage") or place.storage
    yield own
    for mount in after.settings.get("mounts", ()):
        yield mount.get("storage") or own


def _storage_path(name: str) -> str:
    """Where rights to a storage are granted; those who may use none see none."""
    return f"/storage/{name}" if name else "/storage"


def _paths(right: Right, path_of_new: str) -> list[str]:
    """The paths on each of which a right may be granted."""
    path = path_of_new if right.path == NEW else right.path
    return [path, f"/pool/{right.pool}"] if right.pool else [path]


def _of_guest(container: Instance, privilege: str) -> Right:
    vmid = container.settings.get("vmid")
    path = NEW if vmid is None else f"{NEW}/{vmid}"
    return Right(path, (privilege,))


def _of_new(container: Instance, privilege: str, place: Place) -> Right:
    pool = str(container.settings.get("pool", place.pool))
    return replace(_of_guest(container, privilege), pool=pool)


def _of_creation(after: Instance, place: Place) -> Iterator[Right]:
    for name in ("VM.Audit", *TO_CREATE):
        yield _of_new(after, name, place)
    yield _of_guest(after, "VM.Config.Options")  # of tags: the pool does not count there
    for storage in storages(after, place):
        yield Right(_storage_path(storage), ("Datastore.AllocateSpace",))
    yield Right(_storage_path(place.templates), READ_TEMPLATE)
    if after.image in place.downloads:
        yield Right(_storage_path(place.templates), ("Datastore.AllocateTemplate",))
    yield from _of_bridges([after.settings.get("network", {})], place)
    pool = after.settings.get("pool", place.pool)
    if pool:
        yield Right(f"/pool/{pool}", ("Pool.Audit",))
    if not after.settings.get("unprivileged", True):
        yield Right("/", ("Sys.Modify",))


def _of_bridges(networks: Iterable[Mapping[str, Any]], place: Place) -> Iterator[Right]:
    for network in networks:
        if (network.get("bridge") or place.bridge) not in place.vnets:
            yield Right(bridge_path(network, place.bridge), ("SDN.Use",))


def _of_update(change: Change, before: Instance, after: Instance, place: Place) -> Iterator[Right]:
    differing = change.attributes()
    for name in sorted(differing.keys() - {BY_ROOT, *root_only.subjects(before, after)}):
        yield _of_guest(before, _FOR_ATTRIBUTE.get(name, "VM.Config.Options"))
    if differing.keys() & {"disk", "mounts", "devices"}:
        for storage in storages(after, place, before):
            yield Right(_storage_path(storage), ("Datastore.AllocateSpace",))
    if "network" in differing:
        networks = [container.settings.get("network", {}) for container in (before, after)]
        yield from _of_bridges(networks, place)
    for pool in filter(None, differing.get("pool", ())):
        yield Right(f"/pool/{pool}", ("Pool.Allocate",))
        yield Right(f"/pool/{pool}", ("Pool.Audit",))
    is_running = before.status is Status.RUNNING
    if is_running:
        yield _of_guest(before, "VM.Snapshot")
    if not is_running or needs_restart(differing):
        yield _of_guest(before, "VM.PowerMgmt")
