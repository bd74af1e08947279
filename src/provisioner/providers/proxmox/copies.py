"""Copies of artifact volumes in containers: room for them, their content, and what is left of them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from provisioner.providers.proxmox import marks, numbers, volumes
from provisioner.providers.proxmox.guest import Guest
from provisioner.providers.proxmox.host import ProxmoxHost
from provisioner.state import Instance, Status


def room_for(host: ProxmoxHost, instance: Instance) -> dict[str, int]:
    """The bytes that a disk must have for each artifact volume that is mounted read-only."""
    devices = [one.properties for one in instance.devices if one.kind == "volume"]
    return {one["volume"]: volumes.size(host.ssh, one["volume"]) for one in devices if one.get("readonly") == "true"}


def fill(host: ProxmoxHost, guest: Guest) -> None:
    """Give a running container the contents of its artifact volumes, and builders the folders that they build in."""
    if guest.mark is None or host.status(guest.vmid) is not Status.RUNNING:
        return
    for one in guest.mark.volumes:
        host.on_progress(guest.name, f"fill {one.path} from volume {one.volume}")
        if one.readonly:
            volumes.fill(host.ssh, guest.vmid, one.volume, one.path)
        else:
            volumes.open_folder(host.ssh, guest.vmid, one.path)


def tidy(host: ProxmoxHost, vmid: int) -> None:
    """Delete what is left of copies of artifacts that are no longer mounted; other unused disks are people's."""
    guest = host.config(vmid)
    mark = guest.mark
    unused = {name: volume for name, volume in guest.config.items() if name.startswith("unused")}
    doomed = {name: one for name, one in unused.items() if mark and one in mark.discard}
    if mark is None or not doomed:
        return
    # While a snapshot needs it, Proxmox would only forget that it is unused, and a deletion would leave it behind.
    needed_by_snapshots = frozenset[str]().union(*numbers.named_by_snapshots(host.client, vmid).values())
    doomed = {name: one for name, one in doomed.items() if one not in needed_by_snapshots}
    if not doomed:
        return
    left = replace(mark, discard=tuple(one for one in mark.discard if one not in doomed.values()))
    host.client.put(
        *host.path(vmid, "config"),
        delete=",".join(doomed),
        description=marks.written(guest.text, left),
        digest=guest.digest,
    )


def builder_of(host: ProxmoxHost, volume: str) -> tuple[int, str] | None:
    """The number of the container that makes a volume, and the folder in it; None when there is none."""
    for guest in _marked(host):
        for one in guest.mark.volumes if guest.mark else ():
            if one.volume == volume and not one.readonly:
                return guest.vmid, one.path
    return None


def needed(host: ProxmoxHost) -> frozenset[str]:
    """The artifact volumes that containers of the node have, of any lab, and those that their snapshots had."""
    found = {one.volume for guest in _marked(host) if guest.mark for one in guest.mark.volumes}
    lists = host.client.many([partial(host.client.get, *host.path(vmid, "snapshot")) for vmid in _candidates(host)])
    texts = (str(one.get("description", "")) for listed in lists for one in listed)
    return frozenset(found.union(*map(marks.volumes_in, texts)))


def _candidates(host: ProxmoxHost) -> list[int]:
    return [int(one["vmid"]) for one in host.entries() if marks.TAG in marks.tags_in(str(one.get("tags", "")))]


def _marked(host: ProxmoxHost) -> list[Guest]:
    return host.client.many([partial(host.config, vmid) for vmid in _candidates(host)])
