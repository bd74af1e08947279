"""The reasons for which a node would refuse a plan, found before anything is changed. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from provisioner.hosts.proxmox import failures, marks, numbers, rights
from provisioner.hosts.proxmox.access import ROOT, Access
from provisioner.hosts.proxmox.host import DISKS, elsewhere_hint, elsewhere_text
from provisioner.hosts.proxmox.numbers import Disks
from provisioner.hosts.proxmox.rights import Place, Right, TagAccess
from provisioner.hosts.proxmox.ssh import no_ssh_error
from provisioner.values.plan import Change, Thing
from provisioner.values.quantities import size_text
from provisioner.values.state import Artifact, Instance

TEMPLATES_HINT = "On the node: pvesm set local --content vztmpl,iso,backup"


@dataclass(frozen=True, slots=True)
class Storage:
    """One storage as the node sees it; ``is_usable``: enabled, for this node, and there."""

    name: str
    kind: str
    content: frozenset[str]
    is_usable: bool
    available: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Node:
    """A node and its cluster, as far as whoever asks may see them.

    ``members``: the cluster's nodes and whether each is there. ``is_quorate``: None for a node alone, or not told.
    """

    name: str
    members: Mapping[str, bool]
    is_quorate: bool | None = None
    storages: Mapping[str, Storage] = field(default_factory=dict)
    bridges: Mapping[str, str] = field(default_factory=dict)
    pools: frozenset[str] = frozenset()
    guests: tuple[Mapping[str, Any], ...] = ()

    @property
    def is_online(self) -> bool:
        """Whether the node is one of its cluster, and there."""
        return self.members.get(self.name, False)

    @property
    def disk_storages(self) -> list[str]:
        """The names of the usable storages on which disks of guests may lie."""
        names = []
        for storage in self.storages.values():
            takes_disks = storage.content & {DISKS, "images"}
            if storage.is_usable and takes_disks:
                names.append(storage.name)
        return sorted(names)

    def storages_for(self, content: str) -> list[Storage]:
        """The usable storages that take ``content``, by name."""
        fit = [storage for storage in self.storages.values() if storage.is_usable and content in storage.content]
        fit.sort(key=lambda storage: storage.name)
        return fit


@dataclass(frozen=True, slots=True)
class Objection:
    """One thing that the host would refuse, and what to do about it."""

    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Grounds:
    """What was seen of the host. ``images``: whether an image's template is there (False: it can be downloaded).

    ``taken``: numbers that are asked for and that another guest has; ``disks``: of others, under such numbers.
    ``unseen``: rights without which not all such disks are listed. ``moved``: our containers that are on another node.
    ``behind_ssh``: the node that ``ssh:`` leads to, where it says so. ``no_devices``: the device files that are asked
    for and that the node has not; None where nobody could look.
    """

    access: Access
    node: Node
    place: Place
    images: Mapping[str, bool] = field(default_factory=dict)
    taken: Mapping[int, str] = field(default_factory=dict)
    disks: Disks = field(default_factory=Disks)
    moved: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tags: TagAccess = field(default_factory=TagAccess)
    lacking: tuple[Right, ...] = ()
    unseen: tuple[Right, ...] = ()
    behind_ssh: str = ""
    no_devices: frozenset[str] | None = None

    def doubt(self, path: str) -> str:
        """That something may be there all the same, where whoever looks has no rights to it."""
        for right in self.lacking:
            if f"{right.path}/".startswith(f"{path}/"):
                return f", or {rights.holder(self.access)} may not see it"
        return ""


def objections(changes: Sequence[Change], grounds: Grounds) -> Iterator[Objection]:
    """All reasons for which the node would refuse the changes."""
    yield from cluster_objections(grounds.node)
    if not grounds.node.is_online:
        return
    for judge in (_of_storages, _of_bridges, _of_pools, _of_images, _of_numbers, _of_names):
        yield from judge(changes, grounds)
    yield from _of_sizes(changes)
    yield from _of_devices(changes)
    yield from _of_device_files(changes, grounds)
    yield from _of_root(changes, grounds.access)
    yield from _of_ssh(changes, grounds)
    yield from _of_tags(changes, grounds)
    yield from rights_objections(grounds.lacking, grounds.access)


def _of_tags(changes: Sequence[Change], grounds: Grounds) -> Iterator[Objection]:
    refused: set[str] = set()
    containers: set[str] = set()
    for container, wanted in rights.tags_set_by(changes).items():
        refused_here = grounds.tags.refused(wanted)
        if refused_here:
            refused.update(refused_here)
            containers.add(container)
    if refused:
        yield refused_tags(sorted(refused), grounds.tags, grounds.access, ", ".join(sorted(containers)))


def refused_tags(names: Sequence[str], seen: TagAccess, access: Access, whose: str = "") -> Objection:
    """That tags may not be set, for whom, and what to do about it."""
    words = rights.refused_tags_text(names, seen)
    message = f"{whose}: {words}" if whose else words
    grant = failures.how_to_grant(principal(access), "/", rights.TO_SET_ANY_TAG.privileges)
    return Objection(message, rights.refused_tags_hint(names, seen, grant))


def principal(access: Access) -> str:
    """The name that rights are given to: USER or USER!TOKEN."""
    return f"{access.user}!{access.token_id}" if access.token_id else access.user


def rights_objections(lacking: Iterable[Right], access: Access) -> Iterator[Objection]:
    """Privileges that are missing, by path."""
    missing = tuple(lacking)
    for path, names in rights.by_path(missing).items():
        hint = failures.how_to_grant(principal(access), path, rights.first_on(path, missing))
        yield Objection(f"{rights.holder(access)} lacks {names} on {path}", hint)


def without_absent(lacking: Iterable[Right], node: Node, *, sees_all: bool) -> tuple[Right, ...]:
    """The rights without those on storages that are not there: a grant on one would change nothing.

    ``sees_all``: whether whoever looks sees every storage.
    """
    if not sees_all:
        return tuple(lacking)
    return tuple(right for right in lacking if right.storage in ("", *node.storages))


def cluster_objections(node: Node) -> Iterator[Objection]:
    """Why nothing can be changed there at all."""
    if node.name not in node.members:
        there = ", ".join(sorted(node.members))
        yield Objection(f"there is no node {node.name} in the cluster", f"Nodes there: {there}")
    elif not node.is_online:
        yield Objection(f"node {node.name} is down", "Start it, or name another node on the host's page.")
    if node.is_quorate is False:
        down = sorted(name for name, is_up in node.members.items() if not is_up)
        names = ", ".join(down) or "none that it knows"
        yield Objection(
            "the cluster has no quorum: its configuration cannot be written",
            f"Bring back more of its nodes. Not there: {names}. On a node: pvecm status",
        )


def _of_ssh(changes: Sequence[Change], grounds: Grounds) -> Iterator[Objection]:
    containers = targets_worked_inside(changes)
    if containers and not grounds.access.ssh:
        error = no_ssh_error(", ".join(containers))
        yield Objection(error.message, error.resolution)
    if grounds.behind_ssh not in ("", grounds.node.name):
        what = f"ssh: {grounds.access.ssh} leads to node {grounds.behind_ssh}, not to {grounds.node.name}"
        yield Objection(what, f"Write the address of {grounds.node.name} there: pct works on its own node only.")


def _of_storages(changes: Sequence[Change], grounds: Grounds) -> Iterator[Objection]:
    node = grounds.node
    fit = ", ".join(storage.name for storage in node.storages_for(DISKS)) or "none"
    for name, containers in storages_used(changes, grounds.place).items():
        why = storage_problem(name, grounds)
        if why:
            yield Objection(f"{', '.join(containers)}: {why}", f"Storages for containers on node {node.name}: {fit}")


def storage_problem(name: str, grounds: Grounds) -> str:
    """Why a storage cannot have disks of containers; nothing when it can."""
    if not name:
        return f"no storage of node {grounds.node.name} takes containers{grounds.doubt('/storage')}"
    storage = grounds.node.storages.get(name)
    if storage is None:
        return f"there is no storage {name}{grounds.doubt(f'/storage/{name}')}"
    if not storage.is_usable:
        return f"storage {name} is disabled, not there, or not for node {grounds.node.name}"
    if DISKS not in storage.content:
        return f"storage {name} takes no containers (its content has no {DISKS})"
    return ""


def _of_bridges(changes: Sequence[Change], grounds: Grounds) -> Iterator[Objection]:
    for bridge, whose in bridges_used(changes, grounds.place).items():
        if bridge not in grounds.node.bridges:
            yield Objection(f"{', '.join(whose)}: {bridge_problem(bridge, grounds)}", bridges_hint(grounds.node))


def bridge_problem(bridge: str, grounds: Grounds) -> str:
    """That a bridge cannot be used."""
    return f"node {grounds.node.name} has no bridge {bridge}{grounds.doubt(f'{rights.ZONE}/{bridge}')}"


def bridges_hint(node: Node) -> str:
    """What bridges there are instead."""
    names = ", ".join(sorted(node.bridges)) or "none"
    return f"Bridges of node {node.name}: {names}"


def _of_pools(changes: Sequence[Change], grounds: Grounds) -> Iterator[Objection]:
    for pool, whose in pools_used(changes, grounds.place).items():
        if pool not in grounds.node.pools:
            what = f"there is no pool {pool}{grounds.doubt(f'/pool/{pool}')}"
            yield Objection(f"{', '.join(whose)}: {what}", f"On a node: pvesh create /pools --poolid {pool}")


def _of_images(changes: Sequence[Change], grounds: Grounds) -> Iterator[Objection]:
    there = sorted(image for image, is_there in grounds.images.items() if is_there)
    names = ", ".join(there) or "none"
    for image, containers in images_used(changes).items():
        whose = ", ".join(containers)
        if image not in grounds.images:
            what = f"no template for {image} on node {grounds.node.name}, and none to be downloaded"
            hint = f"There: {names}. On the node: pveam update; pveam available --section system"
            yield Objection(f"{whose}: {what}", hint)
            continue
        is_there = grounds.images[image]
        if not is_there and not grounds.place.templates:
            yield Objection(f"{whose}: {_no_storage_for_templates(grounds)}", TEMPLATES_HINT)


def _no_storage_for_templates(grounds: Grounds) -> str:
    if grounds.access.templates:
        return f"storage {grounds.access.templates} takes no templates"
    return f"no storage of node {grounds.node.name} takes templates"


def _of_numbers(changes: Sequence[Change], grounds: Grounds) -> Iterator[Objection]:
    for number, name in numbers_asked(changes).items():
        if number in grounds.taken:
            what = f"{name}: number {number} is taken by {grounds.taken[number]}"
            yield Objection(what, "Write another vmid:, or none.")
    for number, disks in grounds.disks.by_number.items():
        what, hint = numbers.words(number, disks)
        yield Objection(f"{_name_of(changes, number)}: {what}", hint)


def _name_of(changes: Sequence[Change], number: int) -> str:
    """The container that is to be made under a number."""
    return next(container.name for container in containers_made(changes) if container.settings.get("vmid") == number)


def _of_names(changes: Sequence[Change], grounds: Grounds) -> Iterator[Objection]:
    for change in changes:
        if change.action != "create":
            continue
        name = change.target
        if name in grounds.moved:
            elsewhere = grounds.moved[name]
            what = f"{name}: this lab's container of that name is on {elsewhere_text(elsewhere)} now"
            yield Objection(what, elsewhere_hint(grounds.node.name, elsewhere))
            continue
        guest = guest_named(grounds.node, name)
        if guest is not None:
            is_marked = marks.TAG in marks.tags_in(str(guest.get("tags", "")))
            whose = "belongs to another lab" if is_marked else "is not this lab's"
            yield Objection(f"{name}: guest {guest['vmid']} has that name and {whose}", "Choose another name.")


def guest_named(node: Node, name: str) -> Mapping[str, Any] | None:
    """A guest of the node of that name, as the cluster lists it."""
    for guest in node.guests:
        if guest.get("name") == name and guest.get("node") == node.name:
            return guest
    return None


def _of_sizes(changes: Sequence[Change]) -> Iterator[Objection]:
    for _, before, after in container_updates(changes):
        old_sizes = _sizes(before)
        for path, new_size in sorted(_sizes(after).items()):
            old_size = old_sizes.get(path, 0)
            if new_size >= old_size:
                continue
            what = f"the disk at {path} cannot become smaller ({size_text(old_size)} -> {size_text(new_size)})"
            hint = f"Write {size_text(old_size)} or more; or make the container anew: --replace {after.name}"
            yield Objection(f"{after.name}: {what}", hint)


def _sizes(container: Instance) -> dict[str, int]:
    """The sizes of a container's disks, by their paths."""
    sizes: dict[str, int] = {}
    if container.disk:
        sizes["/"] = container.disk
    for mount in container.settings.get("mounts", ()):
        path = str(mount["path"])
        sizes[path] = int(mount["size"])
    return sizes


def _of_devices(changes: Sequence[Change]) -> Iterator[Objection]:
    for change in changes:
        if not isinstance(change.after, Instance):
            continue
        kinds = {device.kind for device in change.after.devices}
        if "publish" in kinds:
            what = f"{change.target}: nothing can be published: a container here has an address of its own"
            yield Objection(what, "Leave the published ports out: its services answer at that address.")


def _of_device_files(changes: Sequence[Change], grounds: Grounds) -> Iterator[Objection]:
    missing = grounds.no_devices or frozenset()
    for path, containers in device_files_used(changes).items():
        if path in missing:
            what = f"{', '.join(containers)}: node {grounds.node.name} has no device {path}"
            yield Objection(what, "Is its driver loaded there? Of NVIDIA's, on the node: nvidia-modprobe -u -c 0")


def _of_root(changes: Sequence[Change], access: Access) -> Iterator[Objection]:
    if rights.root_way(access):
        return
    for change in changes:
        subjects = " and ".join(settings_for_root(change))
        if subjects:
            what = f"{change.target}: its {subjects} can be set by {ROOT} itself only, by no token"
            yield Objection(what, rights.ROOT_ONLY_HINT)


# What a plan uses of a node: storages, bridges, pools, images, numbers, root@pam itself.

_TO_BE_MADE = ("create", "replace")
_NEEDS_DEVICES = (*_TO_BE_MADE, "start", "update")
_NEEDS_INSIDE = (*_TO_BE_MADE, "start", "update", "adopt")

UsersByThing = Mapping[str, Sequence[str]]
"""The containers that ask for a thing of the node, by the thing's name."""


def containers_made(changes: Iterable[Change]) -> list[Instance]:
    """The containers that are made anew."""
    containers = []
    for change in changes:
        after = change.after
        if change.action in _TO_BE_MADE and isinstance(after, Instance):
            containers.append(after)
    return containers


def container_updates(changes: Iterable[Change]) -> Iterator[tuple[Change, Instance, Instance]]:
    """The containers that are changed: the change, before, after."""
    for change in changes:
        before, after = change.before, change.after
        if change.action == "update" and isinstance(before, Instance) and isinstance(after, Instance):
            yield change, before, after


def _updates_of(changes: Iterable[Change], *attributes: str) -> Iterator[tuple[Instance, Instance]]:
    """The containers of which one of the attributes changes: before, after."""
    for change, before, after in container_updates(changes):
        if change.attributes().keys() & set(attributes):
            yield before, after


def storages_used(changes: Sequence[Change], place: Place) -> UsersByThing:
    """The storages that disks are made on; "" where the host has none to be used by default."""
    users: dict[str, list[str]] = defaultdict(list)
    for container in containers_made(changes):
        for name in dict.fromkeys(rights.storages(container, place)):
            users[name].append(container.name)
    for before, after in _updates_of(changes, "mounts", "devices"):
        for name in dict.fromkeys(rights.storages(after, place, before)):
            users[name].append(after.name)
    for artifact in artifacts_built(changes):
        users[place.storage].append(artifact.name)
    return users


def bridges_used(changes: Sequence[Change], place: Place) -> UsersByThing:
    """The bridges that network cards are put on."""
    users: dict[str, list[str]] = defaultdict(list)
    changed = [after for _, after in _updates_of(changes, "network")]
    for container in (*containers_made(changes), *changed):
        network = container.settings.get("network", {})
        bridge = network.get("bridge") or place.bridge
        users[bridge].append(container.name)
    for artifact in artifacts_built(changes):
        network = artifact.builder_settings.get("network", {})
        users[network.get("bridge") or place.bridge].append(artifact.name)
    return users


def pools_used(changes: Sequence[Change], place: Place) -> UsersByThing:
    """The pools that containers are put into."""
    users: dict[str, list[str]] = defaultdict(list)
    moved = [after for _, after in _updates_of(changes, "pool")]
    for container in (*containers_made(changes), *moved):
        pool = str(container.settings.get("pool", place.pool))
        users[pool].append(container.name)
    for artifact in artifacts_built(changes):
        users[place.pool].append(artifact.name)
    users.pop("", None)  # a container without a pool
    return users


def images_used(changes: Iterable[Change]) -> UsersByThing:
    """The images that containers are made of."""
    users: dict[str, list[str]] = defaultdict(list)
    for container in containers_made(changes):
        users[container.image].append(container.name)
    for artifact in artifacts_built(changes):
        users[artifact.image].append(artifact.name)
    return users


def device_files_used(changes: Iterable[Change]) -> UsersByThing:
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


def numbers_asked(changes: Iterable[Change]) -> dict[int, str]:
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


def numbers_kept(changes: Iterable[Change]) -> list[int]:
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


def makes_containers(changes: Sequence[Change]) -> bool:
    """Whether any container is made, be it one that only builds something."""
    return bool(containers_made(changes) or artifacts_built(changes))


def settings_for_root(change: Change) -> tuple[str, ...]:
    """The settings of a change that only root@pam itself may write, by their names in the file."""
    if not isinstance(change.after, Instance):
        return ()
    if change.action in _TO_BE_MADE:
        return rights.root_only_settings(None, change.after)
    if change.action == "update":
        before = change.before if isinstance(change.before, Instance) else None
        return rights.root_only_settings(before, change.after)
    return ()


def targets_worked_inside(changes: Iterable[Change]) -> list[str]:
    """The targets inside of which something has to be done."""
    targets = dict.fromkeys(change.target for change in changes if _needs_inside(change))
    return list(targets)


def _needs_inside(change: Change) -> bool:
    if change.action == "build":
        return True
    if change.action not in _NEEDS_INSIDE or not isinstance(change.after, Instance):
        return False
    return bool(change.after.roles or change.after.devices)


def artifacts_built(changes: Iterable[Change]) -> list[Artifact]:
    """The artifacts that are made, each in a container of its own."""
    artifacts = []
    for change in changes:
        after = change.after
        if change.action == "build" and isinstance(after, Artifact):
            artifacts.append(after)
    return artifacts
