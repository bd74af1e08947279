"""What should be known about a plan before it is applied although the node would refuse nothing of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from provisioner.providers.proxmox import demands, marks, root_only
from provisioner.providers.proxmox.node import Node
from provisioner.providers.proxmox.objections import Grounds, of_rights
from provisioner.values.plan import Change
from provisioner.values.state import Instance


def notes(changes: Sequence[Change], grounds: Grounds) -> Iterator[str]:
    """What should be known although it is no reason to refuse."""
    yield from _notes_of_root(changes, grounds)
    yield from _notes_of_device_files(changes, grounds)
    for unlisted in grounds.disks.unlisted:
        yield f"whether disks of others lie under a number is not known of storage {unlisted}"
    for objection in of_rights(grounds.unseen, grounds.access):
        yield f"disks of others may be hidden: {objection.message}. {objection.hint}"
    for guest in _out_of_sight(changes, grounds.node):
        yield f"CT {guest['vmid']} bears the mark of this lab and is on node {guest['node']}, which does not answer"


def _notes_of_root(changes: Sequence[Change], grounds: Grounds) -> Iterator[str]:
    way = root_only.way(grounds.access)
    for change in changes:
        subjects = demands.for_root(change)
        if subjects:
            yield f"{' and '.join(subjects)} of {change.target}: {root_only.WORDS[way]}"


def _notes_of_device_files(changes: Sequence[Change], grounds: Grounds) -> Iterator[str]:
    if grounds.no_devices is not None:
        return
    for path, containers in demands.device_files(changes).items():
        yield f"whether node {grounds.node.name} has {path}, for {', '.join(containers)}, is not known without ssh"


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
