"""Adopt a container that is no lab's: find it, read it, and put a lab's mark on it."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.providers.proxmox import marks
from provisioner.providers.proxmox.failures import PveError
from provisioner.providers.proxmox.guest import Guest
from provisioner.providers.proxmox.host import ProxmoxHost
from provisioner.providers.proxmox.marks import Mark
from provisioner.providers.proxmox.translate import instance_of
from provisioner.providers.proxmox.write import is_modified
from provisioner.values.errors import ProviderError
from provisioner.values.state import Instance


def read(host: ProxmoxHost, reference: str) -> Instance | None:
    """The container of that name, or else of that number; ``ProviderError`` when several have the name."""
    entries = host.entries()
    vmids = [int(entry["vmid"]) for entry in entries if entry.get("name") == reference]
    if not vmids:
        vmids = [int(entry["vmid"]) for entry in entries if str(entry["vmid"]) == reference]
    if not vmids:
        return None
    if len(vmids) > 1:
        numbers = ", ".join(map(str, sorted(vmids)))
        raise ProviderError(
            f"Unable to look at container {reference}: there are {len(vmids)} of that name",
            details=f"Their numbers: {numbers}",
            resolution="Name one of them by its number.",
        )
    return host.seen(vmids[0])


def named(host: ProxmoxHost, instance: Instance) -> Guest:
    """The container of that name that is the lab's, or else no lab's; ``ProviderError`` when there is none."""
    guests = host.guests_named(instance.name)
    ours = [guest for guest in guests if guest.lab == instance.lab]
    candidates = ours or _unmarked(guests)
    if not candidates:
        raise ProviderError(
            f"Unable to look at container {instance.name}",
            details=f"There is none of that name that bears the mark of lab {instance.lab}, or none.",
        )
    return candidates[0]


def adopt(host: ProxmoxHost, instance: Instance) -> int:
    """Put the lab's mark on a container that bears none, change nothing else of it; its VMID."""
    try:
        return _adopt(host, instance)
    except PveError as error:
        if not is_modified(error):
            raise
        return _adopt(host, instance)  # somebody has written since it was read


def _adopt(host: ProxmoxHost, instance: Instance) -> int:
    guests = host.guests_named(instance.name)
    for guest in guests:
        if guest.lab == instance.lab:
            return guest.vmid
    guest = _only_unmarked(host, instance, guests)
    _mark(host, guest, instance)
    return guest.vmid


def _only_unmarked(host: ProxmoxHost, instance: Instance, guests: Sequence[Guest]) -> Guest:
    """The one container of that name that bears no mark; ``ProviderError`` when there is none, or several."""
    what = f"Unable to adopt container {instance.name}"
    if not guests:
        raise ProviderError(what, details=f"There is no container of that name on node {host.client.node}.")
    unmarked = _unmarked(guests)
    if not unmarked:
        raise ProviderError(
            what,
            details=f"CT {guests[0].vmid} bears the mark of lab {guests[0].lab}.",
            resolution="Take it out of that lab first: delete the line with its mark from its notes in Proxmox.",
        )
    if len(unmarked) > 1:
        numbers = ", ".join(str(guest.vmid) for guest in unmarked)
        raise ProviderError(what, details=f"Several have that name: CT {numbers}", resolution="Rename all but one.")
    return unmarked[0]


def _unmarked(guests: Sequence[Guest]) -> list[Guest]:
    return [guest for guest in guests if guest.mark is None]


def _mark(host: ProxmoxHost, guest: Guest, instance: Instance) -> None:
    seen = instance_of(guest, host.host)
    asked = {"memory": seen.memory, "disk": seen.disk, "swap": seen.settings["swap"]}
    extra = tuple(seen.settings["mounts"])
    mark = Mark(instance.lab, guest.vmid, instance.image, instance.kind, asked=asked, extra=extra)
    host.client.put(
        *host.path(guest.vmid, "config"),
        description=marks.written(guest.text, mark),
        tags=marks.with_tags(marks.tags_in(guest.config.get("tags", "")), instance.lab),
        digest=guest.digest,
    )
