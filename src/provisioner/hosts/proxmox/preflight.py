"""Review a plan on its node: what only root@pam itself may write, and all that the node would refuse, at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from provisioner.hosts.proxmox import marks, numbers, preconditions, rights, templates
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.failures import PveError
from provisioner.hosts.proxmox.host import CAN_SNAPSHOT, DISKS, MACHINE, containers_elsewhere
from provisioner.hosts.proxmox.numbers import Disks
from provisioner.hosts.proxmox.preconditions import (
    Grounds,
    Node,
    Objection,
    Storage,
    objections,
    rights_objections,
)
from provisioner.hosts.proxmox.rights import NEW, OLDEST_WITH_DEVICES, Place, Right, TagAccess
from provisioner.hosts.proxmox.translate import DEFAULT_DISK
from provisioner.lab.artifacts import BUILD_HINT, dhcp_doubts
from provisioner.values.declared import REACHES
from provisioner.values.errors import PreflightError
from provisioner.values.host_facts import UNKNOWN, Capacity, Disk, Pool
from provisioner.values.plan import Change
from provisioner.values.state import Instance

if TYPE_CHECKING:
    from provisioner.hosts.proxmox.api import Client
    from provisioner.hosts.proxmox.ssh import Shell

DEVICES_S = 30.0
_DEVICES = 'for one; do [ -c "$one" ] || [ -b "$one" ] || printf "%s\\n" "$one"; done'
VNET = "vnet"


def review_plan(client: Client, access: Access, shell: Shell | None, changes: Sequence[Change]) -> tuple[str, ...]:
    """What should be known of the changes before they are begun; ``PreflightError`` names all that would be refused."""
    if not changes:
        return ()
    creates = any(change.action == "create" for change in changes)
    pools = preconditions.pools_used(changes, Place("", "", access.bridge, access.pool or ""))
    node = look_at_node(client, pools=bool(pools), guests=creates)
    grounds = Grounds(access, node, default_place(access, node))
    if node.is_online:
        grounds = _complete(client, shell, changes, grounds)
    faults = (*_too_old(client, changes), *objections(changes, grounds))
    if faults:
        raise refused_plan(f"Unable to carry out the plan on node {node.name}", faults)
    return tuple(plan_notes(changes, grounds))


def refused_plan(what: str, faults: Sequence[Objection]) -> PreflightError:
    """One error for all objections."""
    messages = [objection.message for objection in faults]
    return PreflightError(what, details="\n".join(messages), resolution=hints_text(faults))


def hints_text(faults: Iterable[Objection]) -> str:
    """What to do about all of them, each line once."""
    hints = "\n".join(objection.hint for objection in faults)
    return "\n".join(dict.fromkeys(filter(None, hints.splitlines())))


def default_place(access: Access, node: Node) -> Place:
    """What is used on the node where a container says nothing else."""
    vnets = frozenset(name for name, kind in node.bridges.items() if kind == VNET)
    for_templates = template_storages(access, node)
    return Place(
        storage=access.storage or _first_for_disks(node),
        templates=for_templates[0] if for_templates else "",
        bridge=access.bridge,
        pool=access.pool or "",
        vnets=vnets,
    )


def _first_for_disks(node: Node) -> str:
    """The storage for disks by default: one that has snapshots before all others, then by name; "" for none."""
    names = []
    for storage in node.storages_for(DISKS):
        if storage.kind in CAN_SNAPSHOT:
            return storage.name
        names.append(storage.name)
    return names[0] if names else ""


def template_storages(access: Access, node: Node) -> list[str]:
    """The storages that templates are looked for on; a download goes to the first."""
    usable = [storage.name for storage in node.storages_for(templates.CONTENT)]
    if access.templates:
        return [name for name in usable if name == access.templates]
    return sorted(usable, key=lambda name: (name != "local", name))


def images_offered(client: Client, node: Node, storages: Iterable[str]) -> dict[str, bool]:
    """Every image that a container can be made of: whether its template is there (False: it can be downloaded)."""
    status = partial(client.get, "nodes", node.name, "status")
    others: list[Callable[[], Any]] = [
        partial(client.get, "nodes", node.name, "aplinfo"),
        partial(unless_forbidden, status, {}),
    ]
    *contents, offers, state = client.many([*templates.calls(client, storages), *others])
    machine = str(state.get("current-kernel", {}).get("machine", MACHINE))
    found = templates.gathered(contents, offers, machine)
    return {image: image in found.there for image in found.images}


def _complete(client: Client, shell: Shell | None, changes: Sequence[Change], grounds: Grounds) -> Grounds:
    """The grounds with all that a node which is online tells about the changes."""
    node = grounds.node
    images: dict[str, bool] = {}
    if preconditions.images_used(changes):
        images = images_offered(client, node, template_storages(grounds.access, node))
    downloads = frozenset(image for image, is_there in images.items() if not is_there)
    place = replace(grounds.place, downloads=downloads)
    lacking, unseen = _missing(client, changes, place, node)
    sees_all = preconditions.makes_containers(changes) and rights.sees_all_storages((*lacking, *unseen))
    lacking = preconditions.without_absent(lacking, node, sees_all=sees_all)
    return replace(
        grounds,
        place=place,
        images=images,
        taken=_taken(client, node, list(preconditions.numbers_asked(changes))),
        disks=_disks_of_others(client, changes),
        moved=_moved(client, node, changes),
        tags=rights.tag_access(client) if rights.tags_set_by(changes) else TagAccess(),
        lacking=lacking,
        unseen=unseen,
        behind_ssh=_node_behind(shell, changes),
        no_devices=_no_devices(shell, list(preconditions.device_files_used(changes))),
    )


def _no_devices(shell: Shell | None, paths: Sequence[str]) -> frozenset[str] | None:
    """Those of the paths that are no device files on the node; None where that is not known without ssh."""
    if shell is None:
        return None
    if not paths:
        return frozenset()
    done = shell.run(["sh", "-c", _DEVICES, "sh", *paths], timeout_s=DEVICES_S)
    missing = done.stdout.decode(errors="replace").splitlines()
    return frozenset(paths) & frozenset(missing)


def _too_old(client: Client, changes: Sequence[Change]) -> tuple[Objection, ...]:
    """What an older release cannot do, where the plan wants it; it is asked for nothing else."""
    wanting = []
    for change in changes:
        settings = getattr(change.after, "settings", {})
        if settings.get("devices"):
            wanting.append(change.container)
    if not wanting:
        return ()
    release = str(client.get("version")["version"])
    if release_numbers(release) >= release_numbers(OLDEST_WITH_DEVICES):
        return ()
    containers = ", ".join(sorted(wanting))
    message = f"{containers}: device files take Proxmox VE {OLDEST_WITH_DEVICES} or later, and {release} runs there"
    return (Objection(message, "Upgrade the node: apt update && apt full-upgrade."),)


def release_numbers(release: str) -> tuple[int, ...]:
    """A release as numbers that can be compared: "8.1.4-1" is (8, 1, 4)."""
    return tuple(int(part) for part in release.partition("-")[0].split(".") if part.isdecimal())


def _lab_of(changes: Sequence[Change]) -> str:
    """The lab of the first container that is changed; "" where there is none."""
    for change in changes:
        container = change.after or change.before
        if isinstance(container, Instance):
            return container.lab
    return ""


def _missing(
    client: Client, changes: Sequence[Change], place: Place, node: Node
) -> tuple[tuple[Right, ...], tuple[Right, ...]]:
    """The missing rights: those that the changes need, and those without which not all disks are listed."""
    if rights.may_all(client.access):
        return (), ()
    needed = list(rights.of_every_plan(_lab_of(changes)))
    for change in changes:
        needed += rights.of_change(change, place)
    wanted = list(needed)
    if preconditions.makes_containers(changes):
        wanted += rights.to_list_disks(node.disk_storages)
    is_for_new = any(right.path == NEW for right in wanted)
    next_vmid = str(client.get("cluster", "nextid")) if is_for_new else ""
    lacking: list[Right] = []
    unseen: list[Right] = []
    for right in rights.missing(client, wanted, next_vmid):
        rows = lacking if right in needed else unseen
        rows.append(right)
    return tuple(lacking), tuple(unseen)


def _taken(client: Client, node: Node, wanted: Sequence[int]) -> dict[int, str]:
    """Those of ``wanted`` that a guest of the cluster has, and which, as far as it may be seen."""
    holders: dict[int, str] = {}
    for guest in node.guests:
        holders[int(guest["vmid"])] = f"{guest.get('name', 'a guest')} on node {guest.get('node')}"
    answers = client.many([partial(numbers.is_taken, client, number) for number in wanted])
    taken: dict[int, str] = {}
    for number, is_taken in zip(wanted, answers, strict=True):
        if is_taken:
            taken[number] = holders.get(number, "another guest")
    return taken


def _node_behind(shell: Shell | None, changes: Sequence[Change]) -> str:
    """The name of the node that ``ssh:`` leads to; "" where ssh is not needed or no Proxmox answers."""
    if shell is None:
        return ""
    is_needed = preconditions.targets_worked_inside(changes) or any(map(preconditions.settings_for_root, changes))
    if not is_needed:
        return ""
    done = shell.run(["readlink", "/etc/pve/local"])
    return done.stdout.decode(errors="replace").strip().rpartition("/")[2]


def _disks_of_others(client: Client, changes: Sequence[Change]) -> Disks:
    """The disks of others that lie under numbers which the plan asks for, and what could not be seen of them."""
    if not preconditions.makes_containers(changes):
        return Disks()
    wanted, again = preconditions.numbers_asked(changes), preconditions.numbers_kept(changes)
    without_guest = numbers.disks_without_guest(client)
    found = {number: disks for number, disks in without_guest.by_number.items() if number in wanted}
    if again:
        found |= _foreign(client, again)
    return Disks(found, without_guest.unlisted)


def _foreign(client: Client, again: Iterable[int]) -> dict[int, list[str]]:
    """The disks under the numbers of containers that are replaced which are not those containers' own."""
    of_guests = numbers.disks_of_guests(client).by_number
    found: dict[int, list[str]] = {}
    for number in again:
        own = numbers.named_by_container(client, number)
        foreign = [disk for disk in of_guests.get(number, ()) if disk not in own]
        if foreign:
            found[number] = foreign
    return found


def _moved(client: Client, node: Node, changes: Sequence[Change]) -> dict[str, Mapping[str, Any]]:
    """The containers that are to be created and that are this lab's already, on another node."""
    names_by_lab: dict[str, set[str]] = {}
    for change in changes:
        if change.action == "create" and isinstance(change.after, Instance):
            names_by_lab.setdefault(change.after.lab, set()).add(change.target)
    found: dict[str, Mapping[str, Any]] = {}
    for lab, names in names_by_lab.items():
        named = [guest for guest in node.guests if guest.get("name") in names]
        found |= containers_elsewhere(client, named, lab)
    return found


# What should be known about a plan although the node would refuse nothing of it.


def plan_notes(changes: Sequence[Change], grounds: Grounds) -> Iterator[str]:
    """What should be known although it is no reason to refuse."""
    yield from _notes_of_root(changes, grounds)
    yield from _notes_of_device_files(changes, grounds)
    yield from _notes_of_ways_out(changes, grounds)
    for doubt in dhcp_doubts(preconditions.artifacts_built(changes)):
        yield f"{doubt}. {BUILD_HINT}"
    for unlisted in grounds.disks.unlisted:
        yield f"whether disks of others lie under a number is not known of storage {unlisted}"
    for objection in rights_objections(grounds.unseen, grounds.access):
        yield f"disks of others may be hidden: {objection.message}.\n{objection.hint}"
    for guest in _out_of_sight(changes, grounds.node):
        yield f"CT {guest['vmid']} bears the mark of this lab and is on node {guest['node']}, which does not answer"


def _notes_of_root(changes: Sequence[Change], grounds: Grounds) -> Iterator[str]:
    way = rights.root_way(grounds.access)
    for change in changes:
        subjects = preconditions.settings_for_root(change)
        if subjects:
            yield f"{' and '.join(subjects)} of {change.target}: {rights.ROOT_WAY_TEXTS[way]}"


def _notes_of_device_files(changes: Sequence[Change], grounds: Grounds) -> Iterator[str]:
    if grounds.no_devices is not None:
        return
    for path, containers in preconditions.device_files_used(changes).items():
        yield f"whether node {grounds.node.name} has {path}, for {', '.join(containers)}, is not known without ssh"


def _notes_of_ways_out(changes: Sequence[Change], grounds: Grounds) -> Iterator[str]:
    for change in changes:
        after = change.after
        if not isinstance(after, Instance) or after.reaches is not None:
            continue
        if any(f"{one.role}_{REACHES}" in one.variables for one in after.services):
            why = f"the datacenter's firewall is off, or {rights.holder(grounds.access)} may not see it"
            yield f"{change.target} runs code of others, and rules in it alone keep that in: {why}"


def _out_of_sight(changes: Sequence[Change], node: Node) -> list[Mapping[str, Any]]:
    """Containers that seem to be the lab's and are listed without a name: what is to be created may be one of them."""
    labs = set()
    for change in changes:
        if change.action == "create" and isinstance(change.after, Instance):
            labs.add(change.after.lab)
    guests = []
    for guest in node.guests:
        tags_of_guest = str(guest.get("tags", ""))
        if not guest.get("name") and any(marks.is_candidate(tags_of_guest, lab) for lab in labs):
            guests.append(guest)
    return guests


# Capacity: the memory of a node, and the storages on which a plan makes or enlarges disks.

THICK_STORAGE = "lvm"
"""The type of storage for containers that gives a disk its whole size at once."""


def plan_capacity(client: Client, access: Access, changes: Sequence[Change]) -> Capacity:
    """Return the memory, 0 where it may not be seen, and the storages of new and larger disks.

    Copies of artifacts, which lie on disks of their own, are not among these.
    """
    page = partial(client.get, "nodes", client.node)
    entries, state = client.many([partial(page, "storage"), partial(unless_forbidden, partial(page, "status"), {})])
    node = Node(client.node, {}, storages=storages_by_name(entries))
    place = default_place(access, node)
    pools: dict[str, Pool] = {}
    for change in changes:
        for name, disk in _disks_made(change, place):
            pool = pools.get(name) or _capacity_pool(node, name)
            pools[name] = pool.with_disk(disk)
    return Capacity(int(state.get("memory", {}).get("total", 0)), tuple(pools.values()))


def _capacity_pool(node: Node, name: str) -> Pool:
    """Return the storage; that there is one is looked at by ``review_plan``."""
    storage = node.storages.get(name)
    if storage is None or not storage.total:
        return Pool(name, UNKNOWN, UNKNOWN)
    return Pool(name, storage.total, storage.available, storage.kind != THICK_STORAGE)


def _disks_made(change: Change, place: Place) -> Iterator[tuple[str, Disk]]:
    """Yield the disks that are made or enlarged, each with the name of its storage."""
    after = change.after
    if not isinstance(after, Instance):
        return
    before = change.before if isinstance(change.before, Instance) else None
    old_sizes = _disk_sizes(before) if before else {}
    for name, (path, size) in zip(rights.storages(after, place, before), _disk_sizes(after).items(), strict=True):
        old_size = old_sizes.get(path, 0)
        if size > old_size:
            yield name, Disk(after.name, size, size - old_size)


def _disk_sizes(container: Instance) -> dict[str, int]:
    """Return the sizes of a container's disks by their paths, its own one first."""
    sizes = {"/": container.disk or DEFAULT_DISK}
    for mount in container.settings.get("mounts", ()):
        sizes[mount["path"]] = mount["size"]
    return sizes


# What the node offers, read from its API.


def look_at_node(client: Client, *, pools: bool = False, guests: bool = False) -> Node:
    """The node; ``pools`` and ``guests`` (those of the whole cluster) only when they are asked for."""
    members, is_quorate = cluster_members(client)
    name = client.node
    if not members.get(name, False):
        return Node(name, members, is_quorate)
    calls: list[Callable[[], Any]] = [
        partial(client.get, "nodes", name, "storage"),
        partial(client.get, "nodes", name, "network", type="any_bridge"),
        partial(client.get, "pools") if pools else list,
        partial(client.get, "cluster", "resources", type="vm") if guests else list,
    ]
    storages, bridges, known_pools, known_guests = client.many(calls)
    return Node(
        name,
        members,
        is_quorate,
        storages=storages_by_name(storages),
        bridges={entry["iface"]: str(entry["type"]) for entry in bridges},
        pools=frozenset(entry["poolid"] for entry in known_pools),
        guests=tuple(known_guests),
    )


def unless_forbidden(call: Callable[[], Any], otherwise: Any) -> Any:
    """What a call gives; ``otherwise`` where whoever asks may not see it."""
    try:
        return call()
    except PveError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return otherwise


def cluster_members(client: Client) -> tuple[dict[str, bool], bool | None]:
    """The nodes and whether each is there; whether they have quorum (None: a node alone, or it may not be seen)."""
    entries = unless_forbidden(partial(client.get, "cluster", "status"), None)
    members: dict[str, bool] = {}
    if entries is None:
        for entry in client.get("nodes"):
            members[entry["node"]] = entry.get("status") == "online"
        return members, None
    is_quorate = None
    for entry in entries:
        if entry["type"] == "node":
            members[entry["name"]] = bool(entry.get("online"))
        elif entry["type"] == "cluster":
            is_quorate = bool(entry.get("quorate"))
    return members, is_quorate


def storages_by_name(entries: Iterable[Mapping[str, Any]]) -> dict[str, Storage]:
    """Return the storages of a node by their names."""
    return {entry["storage"]: _storage_of(entry) for entry in entries}


def _storage_of(entry: Mapping[str, Any]) -> Storage:
    is_enabled = bool(entry.get("enabled", 1))
    is_there = bool(entry.get("active", 1))
    return Storage(
        entry["storage"],
        str(entry.get("type")),
        content=frozenset(str(entry.get("content", "")).split(",")),
        is_usable=is_enabled and is_there,
        available=int(entry.get("avail") or 0),
        total=int(entry.get("total") or 0),
    )
