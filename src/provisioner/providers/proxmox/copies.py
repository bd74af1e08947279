"""Copies of artifact volumes in containers: their sizes, filling them, and deleting those that are no longer used."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from provisioner.providers.proxmox import marks, numbers, volumes
from provisioner.providers.proxmox.guest import Guest
from provisioner.providers.proxmox.host import ProxmoxHost
from provisioner.providers.proxmox.marks import Mark, Mount
from provisioner.values.state import Instance, Status


def room_for(host: ProxmoxHost, instance: Instance) -> dict[str, int]:
    """The bytes that a disk must have for each artifact volume that is mounted read-only."""
    sizes: dict[str, int] = {}
    for device in instance.devices:
        if device.kind == "volume" and device.properties.get("readonly") == "true":
            volume = device.properties["volume"]
            sizes[volume] = volumes.size(host.ssh, volume)
    return sizes


def fill(host: ProxmoxHost, guest: Guest) -> None:
    """Give a running container the contents of its artifact volumes, and builders the folders that they build in."""
    if guest.mark is None or host.status(guest.vmid) is not Status.RUNNING:
        return
    for mount in guest.mark.volumes:
        host.on_progress(guest.name, f"fill {mount.path} from volume {mount.volume}")
        if mount.readonly:
            volumes.fill(host.ssh, guest.vmid, mount.volume, mount.path)
        else:
            volumes.open_folder(host.ssh, guest.vmid, mount.path)


def tidy(host: ProxmoxHost, vmid: int) -> None:
    """Delete the copies of artifacts that are no longer mounted; other unused disks belong to people and stay."""
    guest = host.config(vmid)
    mark = guest.mark
    if mark is None:
        return
    doomed = _unused_copies(guest, mark)
    if not doomed:
        return
    # While a snapshot needs it, Proxmox would only forget that it is unused, and a deletion would leave it behind.
    needed_by_snapshots = numbers.named_by_snapshots(host.client, vmid)
    for named in needed_by_snapshots.values():
        doomed = {option: volume for option, volume in doomed.items() if volume not in named}
    if not doomed:
        return
    deleted_volumes = set(doomed.values())
    still_to_discard = tuple(volume for volume in mark.discard if volume not in deleted_volumes)
    mark_left = replace(mark, discard=still_to_discard)
    host.client.put(
        *host.path(vmid, "config"),
        delete=",".join(doomed),
        description=marks.written(guest.text, mark_left),
        digest=guest.digest,
    )


def _unused_copies(guest: Guest, mark: Mark) -> dict[str, str]:
    """The volumes to be discarded that the container no longer uses, by their options (``unused0``)."""
    copies: dict[str, str] = {}
    for option, volume in guest.config.items():
        is_unused = option.startswith("unused")
        if is_unused and volume in mark.discard:
            copies[option] = volume
    return copies


def builder_of(host: ProxmoxHost, volume: str) -> tuple[int, str] | None:
    """The number of the container that makes a volume, and the folder in it; None when there is none."""
    for guest in _marked(host):
        for mount in _mounts_of(guest):
            if mount.volume == volume and not mount.readonly:
                return guest.vmid, mount.path
    return None


def needed(host: ProxmoxHost) -> frozenset[str]:
    """The artifact volumes that containers of the node have, of any lab, and those that their snapshots had."""
    names: set[str] = set()
    for guest in _marked(host):
        names.update(mount.volume for mount in _mounts_of(guest))
    calls = [partial(host.client.get, *host.path(vmid, "snapshot")) for vmid in _candidates(host)]
    for snapshots in host.client.many(calls):
        for snapshot in snapshots:
            description = str(snapshot.get("description", ""))
            names |= marks.volumes_in(description)
    return frozenset(names)


def _mounts_of(guest: Guest) -> tuple[Mount, ...]:
    return guest.mark.volumes if guest.mark else ()


def _candidates(host: ProxmoxHost) -> list[int]:
    """The numbers of the containers whose tags say that they are of some lab."""
    vmids = []
    for entry in host.entries():
        tags = marks.tags_in(str(entry.get("tags", "")))
        if marks.TAG in tags:
            vmids.append(int(entry["vmid"]))
    return vmids


def _marked(host: ProxmoxHost) -> list[Guest]:
    return host.client.many([partial(host.config, vmid) for vmid in _candidates(host)])
