"""Containers that are nobody's: looked at, and made a lab's."""

from __future__ import annotations

from provisioner.errors import ProviderError
from provisioner.providers.proxmox import marks
from provisioner.providers.proxmox.failures import PveError
from provisioner.providers.proxmox.guest import Guest
from provisioner.providers.proxmox.host import ProxmoxHost
from provisioner.providers.proxmox.marks import Mark
from provisioner.providers.proxmox.translate import instance_of
from provisioner.providers.proxmox.write import is_modified
from provisioner.state import Instance


def read(host: ProxmoxHost, reference: str) -> Instance | None:
    """The container of that name, or else of that number; ``ProviderError`` when several have the name."""
    entries = host.entries()
    found = [int(one["vmid"]) for one in entries if one.get("name") == reference]
    found = found or [int(one["vmid"]) for one in entries if str(one["vmid"]) == reference]
    if len(found) > 1:
        raise ProviderError(
            f"Unable to look at container {reference}: there are {len(found)} of that name",
            details=f"Their numbers: {', '.join(map(str, sorted(found)))}",
            resolution="Name one of them by its number.",
        )
    return host.seen(found[0]) if found else None


def named(host: ProxmoxHost, instance: Instance) -> Guest:
    """The container of that name that is the lab's, or else nobody's; ``ProviderError`` when there is none."""
    guests = [one for entry in host.entries() if entry.get("name") == instance.name and (one := host.guest(entry))]
    ours = [one for one in guests if one.lab == instance.lab] or [one for one in guests if one.mark is None]
    if not ours:
        raise ProviderError(
            f"Unable to look at container {instance.name}",
            details=f"There is none of that name that bears the mark of lab {instance.lab}, or none.",
        )
    return ours[0]


def adopt(host: ProxmoxHost, instance: Instance) -> int:
    """Put the lab's mark on a container that bears none, change nothing else of it; its VMID."""
    try:
        return _adopt(host, instance)
    except PveError as error:
        if not is_modified(error):
            raise
        return _adopt(host, instance)  # somebody has written since it was read


def _adopt(host: ProxmoxHost, instance: Instance) -> int:
    what = f"Unable to adopt container {instance.name}"
    guests = [one for entry in host.entries() if entry.get("name") == instance.name and (one := host.guest(entry))]
    ours = [one for one in guests if one.lab == instance.lab]
    free = [one for one in guests if one.mark is None]
    if ours:
        return ours[0].vmid
    if not guests:
        raise ProviderError(what, details=f"There is no container of that name on node {host.client.node}.")
    if not free:
        raise ProviderError(
            what,
            details=f"CT {guests[0].vmid} bears the mark of lab {guests[0].lab}.",
            resolution="Take it out of that lab first: delete the line with its mark from its notes in Proxmox.",
        )
    if len(free) > 1:
        numbers = ", ".join(str(one.vmid) for one in free)
        raise ProviderError(what, details=f"Several have that name: CT {numbers}", resolution="Rename all but one.")
    _mark(host, free[0], instance)
    return free[0].vmid


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
