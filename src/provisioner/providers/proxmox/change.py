"""Change a container that exists: all that is asked for, or nothing; adopt one that is no lab's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from provisioner.providers.proxmox import copies, groups, mounts, undo
from provisioner.providers.proxmox.failures import PveError
from provisioner.providers.proxmox.guest import Guest
from provisioner.providers.proxmox.host import ProxmoxHost
from provisioner.providers.proxmox.properties import MIB, bytes_of, mebibytes, parts
from provisioner.providers.proxmox.translate import options_for
from provisioner.providers.proxmox.write import Draft, is_modified, write
from provisioner.values.errors import ProviderError
from provisioner.values.state import Instance


def require_no_publication(instance: Instance) -> None:
    """Refuse to publish ports: the node passes none on."""
    if any(device.kind == "publish" for device in instance.devices):
        raise ProviderError(
            f"Unable to publish ports of container {instance.name}",
            details="A container on Proxmox has an address of its own: nothing has to be published.",
        )


def update(host: ProxmoxHost, wanted: Instance) -> int:
    """Make the container what ``wanted`` says; its VMID. When something fails what was written is put back."""
    require_no_publication(wanted)
    room = copies.room_for(host, wanted)
    guest = _read(host, wanted)
    wanted = groups.numbered(host, guest, wanted)
    try:
        _change(host, guest, wanted, room)
    except PveError as error:
        if not is_modified(error):
            raise
        # Somebody has written since it was read: decided anew, once.
        _change(host, _read(host, wanted), wanted, room)
    copies.fill(host, _read(host, wanted))
    copies.tidy(host, guest.vmid)
    return guest.vmid


def _read(host: ProxmoxHost, wanted: Instance) -> Guest:
    guest = host.existing(wanted, "change")
    return replace(guest, pool=host.pools().get(guest.vmid, ""))


def _change(host: ProxmoxHost, guest: Guest, wanted: Instance, room: Mapping[str, int]) -> None:
    draft = _draft(host, guest, wanted, room)
    guest = _unprotected(host, guest, draft)
    try:
        write(host, guest, draft)
    except (PveError, ProviderError) as error:
        if isinstance(error, PveError) and is_modified(error):
            raise  # before anything was written
        raise undo.undone(host, guest, draft, error) from error


def _draft(host: ProxmoxHost, guest: Guest, wanted: Instance, room: Mapping[str, int]) -> Draft:
    # What a running container has until its next start is not in the configuration that says how it will be.
    busy = host.client.get(*host.path(guest.vmid, "config"), current=True)
    layout = mounts.laid_out(guest, wanted, room, guest.storage, busy)
    sizes = dict(layout.sizes)
    disk = bytes_of(parts(guest.config.get("rootfs", ""), "volume").get("size", ""))
    wish = disk if wanted.disk is None else mebibytes(wanted.disk) * MIB
    if wish < disk:
        raise ProviderError(
            f"Unable to change container {guest.name}: its disk cannot become smaller",
            details=f"It has {disk // MIB} MiB, and the file says {wish // MIB} MiB.",
            resolution=f"Write disk: {disk // MIB}MiB or more; or make it anew: --replace {guest.name}",
        )
    if wish > disk:
        sizes["rootfs"] = wish
    pool = wanted.settings.get("pool")
    return Draft(options_for(wanted, guest, layout), sizes, None if pool == guest.pool else pool)


def _unprotected(host: ProxmoxHost, guest: Guest, draft: Draft) -> Guest:
    """The container, its protection lifted where the file says so: it forbids to change disks in the same request."""
    disks = sorted(name for name in draft.options if name.startswith("mp"))
    if guest.config.get("protection") != "1" or not disks:
        return guest
    if draft.options.get("protection", "1") is not None:
        raise ProviderError(
            f"Unable to change container {guest.name}: it is protected",
            details=f"Its disks ({', '.join(disks)}) can be neither added nor detached while it is.",
            resolution="Write protection: false, run up, and protect it again; nothing lifts it by itself.",
        )
    host.client.put(*host.path(guest.vmid, "config"), delete="protection", digest=guest.digest)
    return replace(host.config(guest.vmid), pool=guest.pool)
