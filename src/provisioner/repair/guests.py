"""The guests that a stale node has, against those that the cluster has: what a rejoin would lose. Pure.

After a rejoin the cluster's ``/etc/pve`` counts: a configuration that only the node has is gone, its disks are not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from provisioner.repair.facts import Guest, NodeFacts


class Fate(StrEnum):
    """What becomes of a guest that the node has."""

    KEPT = "kept"
    CHANGED = "changed"
    """The cluster has its configuration, too, and another one: the cluster's counts."""
    MOVED = "moved"
    """The same guest is on another node now, with the same disks: they are shared."""
    LOST = "lost"
    """Only the node has its configuration."""
    CONFLICT = "conflict"
    """The cluster has another guest with this VMID, or the same one with other disks: two would share their names."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A guest of the node, where the cluster has its VMID (empty: nowhere), and of a conflict what differs.

    ``loose``: its disks that no configuration of the cluster's on this node would name any more.
    """

    guest: Guest
    fate: Fate
    owner: str = ""
    why: str = ""
    loose: tuple[str, ...] = ()


def judge_guests(own: Iterable[Guest], lead: NodeFacts, node: str) -> tuple[Judged, ...]:
    """Every guest of ``node`` (as it has them itself) with what a rejoin would do to it, by VMID."""
    by_id = dict[int, Guest]()
    for guests in lead.guests.values():
        for guest in guests:
            by_id[guest.vmid] = guest
    ordered = sorted(set(own), key=lambda guest: (guest.vmid, guest.kind))
    return tuple(_judged(guest, lead, by_id, node) for guest in ordered)


def refused(judged: Iterable[Judged], given_up: Collection[int]) -> tuple[Judged, ...]:
    """Those for which a rejoin is refused, unless the user has given the node's configuration of them up."""
    refusals = list[Judged]()
    for judgement in judged:
        is_bad = judgement.fate in (Fate.LOST, Fate.CONFLICT)
        if is_bad and judgement.guest.vmid not in given_up:
            refusals.append(judgement)
    return tuple(refusals)


def guest_words(judged: Judged) -> str:
    """One guest and its fate, in a line."""
    guest = judged.guest
    kind_and_name = f"{guest.kind} {guest.name}".rstrip()
    fates = {
        Fate.KEPT: "the cluster has it on this node, too",
        Fate.CHANGED: "the cluster's configuration of it differs, and will be the one that counts",
        Fate.MOVED: f"the same guest is on {judged.owner} now; its configuration there counts",
        Fate.LOST: "only this node has its configuration",
        Fate.CONFLICT: judged.why,
    }
    return f"{guest.vmid} ({kind_and_name}): {fates[judged.fate]}"


def recovery_words(judged: Judged, node: str, lead: str, address: str) -> str:
    """What to do about a guest for which a rejoin is refused, in commands; VMIDs are numbers, names are names.

    ``address``: where ``lead`` reaches ``node``; its name may lead nowhere there.
    """
    guest = judged.guest
    folder = "lxc" if guest.kind == "lxc" else "qemu-server"
    file = f"/etc/pve/nodes/{node}/{folder}/{guest.vmid}.conf"
    if judged.fate is Fate.LOST:
        host = f"[{address}]" if ":" in address else address
        return f"{guest.vmid}: to keep it, give the cluster its configuration. On {lead}: scp root@{host}:{file} {file}"
    if judged.loose:
        return (
            f"{guest.vmid}: to keep {', '.join(judged.loose)}, name them in the cluster's configuration of the guest. "
            f"On {lead}: {file}. To lose track of them: --give-up {guest.vmid}"
        )
    disks = ", ".join(guest.volumes) or "none"
    return (
        f"{guest.vmid}: to keep it, give it a free VMID (on {lead}: pvesh get /cluster/nextid). Rename its disks on "
        f"{node} ({disks}), write its configuration with their new names to /etc/pve/nodes/{node}/{folder}/NEW.conf on "
        f"{lead}, and give the old one up: --give-up {guest.vmid}"
    )


def _judged(guest: Guest, lead: NodeFacts, by_id: Mapping[int, Guest], node: str) -> Judged:
    """What a rejoin would do to one guest, by the node on which the cluster has its VMID."""
    owner = lead.vmlist.get(guest.vmid, "")
    if not owner:
        return Judged(guest, Fate.LOST)
    there = by_id.get(guest.vmid)
    if there is None:
        why = f"the cluster has a guest with this VMID on {owner}, and what it is could not be read"
        return Judged(guest, Fate.CONFLICT, owner, why)
    if owner == node:
        return _at_home(guest, there, owner)
    return _elsewhere(guest, there, owner, lead)


def _at_home(guest: Guest, there: Guest, owner: str) -> Judged:
    """The cluster has the VMID on this node, too: the same guest, unless its kind or its disks say otherwise."""
    if there.kind != guest.kind:
        return Judged(guest, Fate.CONFLICT, owner, f"the cluster has a {there.kind} guest with this VMID on {owner}")
    loose = tuple(volume for volume in guest.volumes if volume not in there.volumes)
    if loose:
        why = f"the cluster's configuration of it does not have {', '.join(loose)}"
        return Judged(guest, Fate.CONFLICT, owner, why, loose)
    fate = Fate.KEPT if there.digest == guest.digest else Fate.CHANGED
    return Judged(guest, fate, owner)


def _elsewhere(guest: Guest, there: Guest, owner: str, lead: NodeFacts) -> Judged:
    """The cluster has the VMID on another node: the guest has moved there, if all its disks could move along."""
    if not _is_same_guest(guest, there):
        return Judged(guest, Fate.CONFLICT, owner, f"the cluster has another guest with this VMID on {owner}")
    shared = {storage.name for storage in lead.storages if storage.is_shared}
    local = [volume for volume in guest.volumes if not _is_on(volume, shared)]
    if local:
        why = f"the cluster has it on {owner}, and {', '.join(local)} is on no shared storage: there are two of it now"
        return Judged(guest, Fate.CONFLICT, owner, why)
    return Judged(guest, Fate.MOVED, owner)


def _is_on(volume: str, storages: Collection[str]) -> bool:
    """Whether the volume is on one of these storages; a device or folder of the node's own is on none."""
    return not volume.startswith("/") and volume.partition(":")[0] in storages


def _is_same_guest(guest: Guest, other: Guest) -> bool:
    """By kind and name and disks: its other settings may have changed since it moved."""
    if (guest.kind, guest.name) != (other.kind, other.name):
        return False
    return sorted(guest.volumes) == sorted(other.volumes)
