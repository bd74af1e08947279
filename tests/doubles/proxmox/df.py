"""What ``df -P -T -k`` says in a container of the double: file systems as large as their disks, or as those were."""

from __future__ import annotations

from collections.abc import Sequence

from tests.doubles.proxmox import disks
from tests.doubles.proxmox.guest import volumes
from tests.doubles.proxmox.world import World

HEAD = "Filesystem     Type 1024-blocks   Used Available Capacity Mounted on"
OWN_SHARE = 0.98
"""Of a disk, what ext4 leaves to files."""


def df(world: World, vmid: int, paths: Sequence[str]) -> str:
    """A line for each path that a disk of the container is mounted at."""
    return "\n".join([HEAD, *(line for path in paths for line in _lines(world, vmid, path)), ""])


def _lines(world: World, vmid: int, path: str) -> list[str]:
    guest = world.guests[vmid]
    found = [
        disks.volume_of(world, guest.node, given["volume"])
        for option, given in volumes(guest.config)
        if given["kind"] == "volume" and path == ("/" if option == "rootfs" else given["mp"])
    ]
    lines = []
    for storage, volume in found:
        kind = "zfs" if storage.kind == "zfspool" else "ext4"
        kib = int((volume.file_system or volume.size) * (OWN_SHARE if kind == "ext4" else 1)) // 1024
        name = volume.volid.replace(":", "-")
        lines.append(f"/dev/mapper/{name} {kind} {kib} 500000 {kib - 500000} 5% {path}")
    return lines
