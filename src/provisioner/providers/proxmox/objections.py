"""Why a node would refuse a plan, in words, found before anything is touched. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from provisioner.plan import Change
from provisioner.providers.proxmox import demands, failures, marks, moved, numbers, rights, root_only, tags
from provisioner.providers.proxmox.access import Access
from provisioner.providers.proxmox.node import DISKS, Node
from provisioner.providers.proxmox.numbers import Disks
from provisioner.providers.proxmox.rights import Place, Right
from provisioner.providers.proxmox.ssh_failures import no_ssh
from provisioner.providers.proxmox.tags import Rules
from provisioner.sizes import size_text
from provisioner.state import Instance

GIB = 2**30
TEMPLATES_HINT = "On the node: pvesm set local --content vztmpl,iso,backup"


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
    tags: Rules = field(default_factory=Rules)
    lacking: tuple[Right, ...] = ()
    unseen: tuple[Right, ...] = ()
    behind_ssh: str = ""
    no_devices: frozenset[str] | None = None

    def doubt(self, path: str) -> str:
        """That something may be there all the same, where whoever looks has no rights to it."""
        is_hidden = any(f"{right.path}/".startswith(f"{path}/") for right in self.lacking)
        return f", or {rights.holder(self.access)} may not see it" if is_hidden else ""


def objections(changes: Sequence[Change], grounds: Grounds) -> Iterator[Objection]:
    """All of them."""
    yield from of_cluster(grounds.node)
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
    yield from of_rights(grounds.lacking, grounds.access)


def _of_tags(changes: Sequence[Change], grounds: Grounds) -> Iterator[Objection]:
    whose: dict[str, list[str]] = {}
    for name, wanted in tags.set_by(changes).items():
        for tag in grounds.tags.refused(wanted):
            whose.setdefault(tag, []).append(name)
    if whose:
        containers = sorted({name for names in whose.values() for name in names})
        yield refused_tags(sorted(whose), grounds.tags, grounds.access, ", ".join(containers))


def refused_tags(names: Sequence[str], seen: Rules, access: Access, whose: str = "") -> Objection:
    """That tags may not be set, for whom, and what to do about it."""
    message = f"{whose}: {tags.words(names, seen)}" if whose else tags.words(names, seen)
    return Objection(message, tags.hint(names, seen, failures.how_to_grant(principal(access), "/")))


def principal(access: Access) -> str:
    """The name that rights are given to: USER or USER!TOKEN."""
    return f"{access.user}!{access.token_id}" if access.token_id else access.user


def notes(changes: Sequence[Change], grounds: Grounds) -> Iterator[str]:
    """What should be known although it is no reason to refuse."""
    for one in changes:
        subjects = demands.for_root(one)
        if subjects:
            yield f"{' and '.join(subjects)} of {one.target}: {root_only.WORDS[root_only.way(grounds.access)]}"
    if grounds.no_devices is None:
        for path, whose in demands.device_files(changes).items():
            yield f"whether node {grounds.node.name} has {path}, for {', '.join(whose)}, is not known without ssh"
    for unlisted in grounds.disks.unlisted:
        yield f"whether disks of others lie under a number is not known of storage {unlisted}"
    for objection in of_rights(grounds.unseen, grounds.access):
        yield f"disks of others may be hidden: {objection.message}. {objection.hint}"
    for guest in _out_of_sight(changes, grounds.node):
        yield f"CT {guest['vmid']} bears the mark of this lab and is on node {guest['node']}, which does not answer"
    for name, needed in demands.room(changes, grounds.place).items():
        storage = grounds.node.storages.get(name)
        if storage is not None and needed > storage.available:
            amounts = f"{needed / GIB:.1f} GiB are to be made on it, {storage.available / GIB:.1f} GiB are free"
            yield f"storage {name} of node {grounds.node.name} may be too small: {amounts}"


def of_rights(lacking: Iterable[Right], access: Access) -> Iterator[Objection]:
    """Privileges that are missing, by path."""
    for path, names in rights.by_path(lacking).items():
        hint = failures.how_to_grant(principal(access), path)
        yield Objection(f"{rights.holder(access)} lacks {names} on {path}", hint)


def of_cluster(node: Node) -> Iterator[Objection]:
    """Why nothing can be changed there at all."""
    if node.name not in node.members:
        there = ", ".join(sorted(node.members))
        yield Objection(f"there is no node {node.name} in the cluster", f"Nodes there: {there}")
    elif not node.is_online:
        yield Objection(f"node {node.name} is down", "Start it, or name another node on the host's page.")
    if node.is_quorate is False:
        down = ", ".join(sorted(name for name, is_up in node.members.items() if not is_up)) or "none that it knows"
        yield Objection(
            "the cluster has no quorum: its configuration cannot be written",
            f"Bring back more of its nodes. Not there: {down}. On a node: pvecm status",
        )


def _of_ssh(changes: Sequence[Change], grounds: Grounds) -> Iterator[Objection]:
    whose = [] if grounds.access.ssh else demands.inside(changes)
    if whose:
        error = no_ssh(", ".join(whose))
        yield Objection(error.message, error.resolution)
    if grounds.behind_ssh not in ("", grounds.node.name):
        what = f"ssh: {grounds.access.ssh} leads to node {grounds.behind_ssh}, not to {grounds.node.name}"
        yield Objection(what, f"Write the address of {grounds.node.name} there: pct works on its own node only.")


def _of_storages(changes: Sequence[Change], grounds: Grounds) -> Iterator[Objection]:
    fit = ", ".join(one.name for one in grounds.node.storages_for(DISKS)) or "none"
    for name, whose in demands.storages(changes, grounds.place).items():
        why = unfit(name, grounds)
        if why:
            yield Objection(f"{', '.join(whose)}: {why}", f"Storages for containers on node {grounds.node.name}: {fit}")


def unfit(name: str, grounds: Grounds) -> str:
    """Why a storage cannot have disks of containers; nothing when it can."""
    storage = grounds.node.storages.get(name)
    if not name:
        return f"no storage of node {grounds.node.name} takes containers{grounds.doubt('/storage')}"
    if storage is None:
        return f"there is no storage {name}{grounds.doubt(f'/storage/{name}')}"
    if not storage.is_usable:
        return f"storage {name} is disabled, not there, or not for node {grounds.node.name}"
    return "" if DISKS in storage.content else f"storage {name} takes no containers (its content has no {DISKS})"


def _of_bridges(changes: Sequence[Change], grounds: Grounds) -> Iterator[Objection]:
    for bridge, whose in demands.bridges(changes, grounds.place).items():
        if bridge not in grounds.node.bridges:
            yield Objection(f"{', '.join(whose)}: {no_bridge(bridge, grounds)}", bridges_hint(grounds.node))


def no_bridge(bridge: str, grounds: Grounds) -> str:
    """That a bridge cannot be used."""
    return f"node {grounds.node.name} has no bridge {bridge}{grounds.doubt(f'{rights.ZONE}/{bridge}')}"


def bridges_hint(node: Node) -> str:
    """What bridges there are instead."""
    return f"Bridges of node {node.name}: {', '.join(sorted(node.bridges)) or 'none'}"


def _of_pools(changes: Sequence[Change], grounds: Grounds) -> Iterator[Objection]:
    for pool, whose in demands.pools(changes, grounds.place).items():
        if pool not in grounds.node.pools:
            what = f"there is no pool {pool}{grounds.doubt(f'/pool/{pool}')}"
            yield Objection(f"{', '.join(whose)}: {what}", f"On a node: pvesh create /pools --poolid {pool}")


def _of_images(changes: Sequence[Change], grounds: Grounds) -> Iterator[Objection]:
    name = grounds.node.name
    there = ", ".join(sorted(image for image, is_there in grounds.images.items() if is_there)) or "none"
    for image, whose in demands.images(changes).items():
        if image not in grounds.images:
            what = f"no template for {image} on node {name}, and none to be downloaded"
            hint = f"There: {there}. On the node: pveam update; pveam available --section system"
            yield Objection(f"{', '.join(whose)}: {what}", hint)
        elif not grounds.images[image] and not grounds.place.templates:
            named = grounds.access.templates
            what = f"storage {named} takes no templates" if named else f"no storage of node {name} takes templates"
            yield Objection(f"{', '.join(whose)}: {what}", TEMPLATES_HINT)


def _of_numbers(changes: Sequence[Change], grounds: Grounds) -> Iterator[Objection]:
    for number, name in demands.numbers(changes).items():
        if number in grounds.taken:
            what = f"{name}: number {number} is taken by {grounds.taken[number]}"
            yield Objection(what, "Write another vmid:, or none.")
    for number, disks in grounds.disks.by_number.items():
        what, hint = numbers.words(number, disks)
        yield Objection(f"{_name_of(changes, number)}: {what}", hint)


def _name_of(changes: Sequence[Change], number: int) -> str:
    """The container that is to be made under a number."""
    return next(one.name for one in demands.made(changes) if one.settings.get("vmid") == number)


def _of_names(changes: Sequence[Change], grounds: Grounds) -> Iterator[Objection]:
    for name in (one.target for one in changes if one.action == "create"):
        there = same_name(grounds.node, name)
        if name in grounds.moved:
            elsewhere = grounds.moved[name]
            what = f"{name}: this lab's container of that name is on {moved.words(elsewhere)} now"
            yield Objection(what, moved.hint(grounds.node.name, elsewhere))
        elif there is not None:
            is_marked = marks.TAG in marks.tags_in(str(there.get("tags", "")))
            whose = "belongs to another lab" if is_marked else "is not this lab's"
            yield Objection(f"{name}: guest {there['vmid']} has that name and {whose}", "Choose another name.")


def same_name(node: Node, name: str) -> Mapping[str, Any] | None:
    """A guest of the node of that name, as the cluster lists it."""
    return next((one for one in node.guests if one.get("name") == name and one.get("node") == node.name), None)


def _out_of_sight(changes: Sequence[Change], node: Node) -> list[Mapping[str, Any]]:
    """Containers of ours, as it seems, that nobody tells the names of: what is to be created may be one of them."""
    labs = {one.after.lab for one in changes if one.action == "create" and isinstance(one.after, Instance)}
    nameless = [one for one in node.guests if not one.get("name")]
    return [one for one in nameless if any(marks.is_candidate(str(one.get("tags", "")), lab) for lab in labs)]


def _of_sizes(changes: Sequence[Change]) -> Iterator[Objection]:
    for _, before, after in demands.updates(changes):
        old, new = _sizes(before), _sizes(after)
        for path in sorted(path for path, size in new.items() if size < old.get(path, 0)):
            what = f"the disk at {path} cannot become smaller ({size_text(old[path])} -> {size_text(new[path])})"
            hint = f"Write {size_text(old[path])} or more; or make the container anew: --replace {after.name}"
            yield Objection(f"{after.name}: {what}", hint)


def _sizes(one: Instance) -> dict[str, int]:
    """The sizes of a container's disks, by their paths."""
    disk = {"/": one.disk} if one.disk else {}
    return {**disk, **{str(mount["path"]): int(mount["size"]) for mount in one.settings.get("mounts", ())}}


def _of_devices(changes: Sequence[Change]) -> Iterator[Objection]:
    for one in changes:
        if isinstance(one.after, Instance) and any(device.kind == "publish" for device in one.after.devices):
            what = f"{one.target}: nothing can be published: a container here has an address of its own"
            yield Objection(what, "Leave the published ports out: its services answer at that address.")


def _of_device_files(changes: Sequence[Change], grounds: Grounds) -> Iterator[Objection]:
    for path, whose in demands.device_files(changes).items():
        if path in (grounds.no_devices or ()):
            what = f"{', '.join(whose)}: node {grounds.node.name} has no device {path}"
            yield Objection(what, "Is its driver loaded there? Of NVIDIA's, on the node: nvidia-modprobe -u -c 0")


def _of_root(changes: Sequence[Change], access: Access) -> Iterator[Objection]:
    for one in changes:
        subjects = demands.for_root(one)
        if subjects and not root_only.way(access):
            what = f"{one.target}: its {' and '.join(subjects)} can be set by {root_only.ROOT} itself only, by no token"
            yield Objection(what, root_only.HOW)
