"""Make a disk of a container larger, and see that the file system on it grew, too.

Proxmox ends the task well when the file system stayed as it was, and says so in the task's log only.
"""

from __future__ import annotations

from typing import Any

from provisioner.inside import file_systems
from provisioner.inside.file_systems import Growth, Look
from provisioner.providers.proxmox import inside, tasks
from provisioner.providers.proxmox.failures import PveError
from provisioner.providers.proxmox.guest import Guest
from provisioner.providers.proxmox.host import ProxmoxHost
from provisioner.providers.proxmox.properties import bytes_of, mebibytes, parts
from provisioner.values.state import Status

ROOT = "rootfs"
_SAME_SIZE = "already at specified size"
_FAILED = "Failed to update the container's filesystem"
_REPAIR = (
    "The disk itself is large enough, so up does not try again. On node {node}: "
    "pct shutdown {vmid}; pct fsck {vmid} --device {slot}; resize2fs $(pvesm path {volume}); pct start {vmid}"
)


def grow(host: ProxmoxHost, guest: Guest, slot: str, size: int) -> None:
    """Make one of its disks so large; ``ProviderError`` when the file system on it surely did not follow."""
    growth = Growth(_path(guest, slot), size_of(guest, slot), size)
    before = _look(host, guest, growth)
    said = _resized(host, guest, slot, size)
    after = _look(host, guest, growth)
    if any(_FAILED in line for line in said) or file_systems.stayed_small(growth, before, after):
        repair = _REPAIR.format(node=host.client.node, vmid=guest.vmid, slot=slot, volume=_volume(guest, slot))
        raise file_systems.not_grown(guest.name, growth, after, "\n".join(said), repair)
    why = before.why or after.why
    if why:
        host.on_progress(guest.name, growth.unread(why))


def size_of(guest: Guest, slot: str) -> int:
    """The bytes that one of a container's disks has."""
    return bytes_of(parts(guest.config.get(slot, ""), "volume").get("size", ""))


def _path(guest: Guest, slot: str) -> str:
    return "/" if slot == ROOT else parts(guest.config[slot], "volume").get("mp", "")


def _volume(guest: Guest, slot: str) -> str:
    return parts(guest.config[slot], "volume")["volume"]


def _look(host: ProxmoxHost, guest: Guest, growth: Growth) -> Look:
    """What ``df`` in the container shows of that disk, where it runs and the node lets us in."""
    shell = host.shell
    if host.status(guest.vmid) is not Status.RUNNING:
        return Look(why="the container does not run")
    if shell is None:
        return Look(why="without ssh: nobody can look into the container")
    return file_systems.look(
        lambda command: inside.execute(shell, guest.vmid, command, timeout_s=file_systems.TIMEOUT_S, name=guest.name),
        [growth.path],
    )


def _resized(host: ProxmoxHost, guest: Guest, slot: str, size: int) -> list[str]:
    """Have the node do it; the lines that its task said."""
    begun: list[str] = []
    form: dict[str, Any] = {"disk": slot, "size": f"{mebibytes(size)}M"}

    def ask() -> str:
        begun.append(str(host.client.put(*host.path(guest.vmid, "resize"), **form)))
        return begun[-1]

    with host.turn(guest.storage):
        try:
            host.task(ask, guest.name)
        except PveError as error:
            if error.lost:
                host.settle(guest.vmid, guest.name)
            if _SAME_SIZE not in error.message and size_of(host.config(guest.vmid), slot) != size:
                raise
    return tasks.lines(host.client, begun[-1]) if begun else []
