"""Review a plan on its node: what only root@pam itself may write, and all that the node would refuse, at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from provisioner.providers.proxmox import demands, moved, numbers, rights, tags, templates
from provisioner.providers.proxmox.access import Access
from provisioner.providers.proxmox.host import CAN_SNAPSHOT
from provisioner.providers.proxmox.node import DISKS, TEMPLATES, VNET, Node, look, permitted
from provisioner.providers.proxmox.notes import notes
from provisioner.providers.proxmox.numbers import Disks
from provisioner.providers.proxmox.objections import Grounds, Objection, objections
from provisioner.providers.proxmox.rights import NEW, Place, Right
from provisioner.providers.proxmox.root_only import OLDEST
from provisioner.providers.proxmox.tags import Rules
from provisioner.values.errors import PreflightError
from provisioner.values.plan import Change
from provisioner.values.state import Instance

if TYPE_CHECKING:
    from provisioner.providers.proxmox.client import Client
    from provisioner.providers.proxmox.shell import Shell

DEVICES_S = 30.0
_DEVICES = 'for one; do [ -c "$one" ] || [ -b "$one" ] || printf "%s\\n" "$one"; done'
MACHINE = "x86_64"
"""What a node is whose kernel may not be seen."""


def review(client: Client, access: Access, shell: Shell | None, changes: Sequence[Change]) -> tuple[str, ...]:
    """What should be known of the changes before they are begun; ``PreflightError`` names all that would be refused."""
    if not changes:
        return ()
    creates = any(change.action == "create" for change in changes)
    pools = demands.pools(changes, Place("", "", access.bridge, access.pool or ""))
    node = look(client, pools=bool(pools), guests=creates)
    grounds = Grounds(access, node, place_of(access, node))
    if node.is_online:
        grounds = _complete(client, shell, changes, grounds)
    faults = (*_too_old(client, changes), *objections(changes, grounds))
    if faults:
        raise refusal(f"Unable to carry out the plan on node {node.name}", faults)
    return tuple(notes(changes, grounds))


def refusal(what: str, faults: Sequence[Objection]) -> PreflightError:
    """One error for all objections."""
    messages = [objection.message for objection in faults]
    hints = dict.fromkeys(objection.hint for objection in faults)
    return PreflightError(what, details="\n".join(messages), resolution="\n".join(filter(None, hints)))


def place_of(access: Access, node: Node) -> Place:
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
    usable = [storage.name for storage in node.storages_for(TEMPLATES)]
    if access.templates:
        return [name for name in usable if name == access.templates]
    return sorted(usable, key=lambda name: (name != "local", name))


def images_of(client: Client, node: Node, storages: Iterable[str]) -> dict[str, bool]:
    """Every image that a container can be made of: whether its template is there (False: it can be downloaded)."""
    status = partial(client.get, "nodes", node.name, "status")
    others: list[Callable[[], Any]] = [
        partial(client.get, "nodes", node.name, "aplinfo"),
        partial(permitted, status, {}),
    ]
    *contents, offers, state = client.many([*templates.calls(client, storages), *others])
    machine = str(state.get("current-kernel", {}).get("machine", MACHINE))
    found = templates.gathered(contents, offers, machine)
    return {image: image in found.there for image in found.images}


def _complete(client: Client, shell: Shell | None, changes: Sequence[Change], grounds: Grounds) -> Grounds:
    """The grounds with all that a node which is online tells about the changes."""
    node = grounds.node
    images: dict[str, bool] = {}
    if demands.images(changes):
        images = images_of(client, node, template_storages(grounds.access, node))
    downloads = frozenset(image for image, is_there in images.items() if not is_there)
    place = replace(grounds.place, downloads=downloads)
    lacking, unseen = _missing(client, changes, place, node)
    return replace(
        grounds,
        place=place,
        images=images,
        taken=_taken(client, node, list(demands.numbers(changes))),
        disks=_disks(client, changes),
        moved=_moved(client, node, changes),
        tags=tags.rules(client) if tags.set_by(changes) else Rules(),
        lacking=lacking,
        unseen=unseen,
        behind_ssh=_node_behind(shell, changes),
        no_devices=_no_devices(shell, list(demands.device_files(changes))),
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
    if numbers_of(release) >= numbers_of(OLDEST):
        return ()
    containers = ", ".join(sorted(wanting))
    message = f"{containers}: device files take Proxmox VE {OLDEST} or later, and {release} runs there"
    return (Objection(message, "Upgrade the node: apt update && apt full-upgrade."),)


def numbers_of(release: str) -> tuple[int, ...]:
    """A release as numbers that can be compared: "8.1.4-1" is (8, 1, 4)."""
    return tuple(int(part) for part in release.partition("-")[0].split(".") if part.isdecimal())


def _needed(changes: Sequence[Change], place: Place) -> list[Right]:
    needed = list(rights.of_every_plan(_lab_of(changes)))
    for change in changes:
        needed += rights.of_change(change, place)
    return needed


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
    needed = _needed(changes, place)
    wanted = list(needed)
    if demands.makes(changes):
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
    is_needed = demands.inside(changes) or any(map(demands.for_root, changes))
    return node_behind(shell) if is_needed else ""


def _disks(client: Client, changes: Sequence[Change]) -> Disks:
    """The disks of others that lie under numbers which the plan asks for, and what could not be seen of them."""
    if not demands.makes(changes):
        return Disks()
    wanted, again = demands.numbers(changes), demands.numbers_again(changes)
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
        found |= moved.elsewhere(client, named, lab)
    return found


def node_behind(shell: Shell) -> str:
    """The name of the node that ``ssh:`` leads to; "" where there is no Proxmox that would say."""
    done = shell.run(["readlink", "/etc/pve/local"])
    return done.stdout.decode(errors="replace").strip().rpartition("/")[2]
