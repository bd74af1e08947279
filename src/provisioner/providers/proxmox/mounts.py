"""Disks that are mounted in a container: the file's ``mounts``, and the copies of artifact volumes. Pure.

Folders and devices of the host that somebody mounted by hand have no word here, and are left as they are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from provisioner.providers.proxmox.guest import Guest
from provisioner.providers.proxmox.marks import Mount
from provisioner.providers.proxmox.properties import MIB, bytes_of, gibibytes, joined, mebibytes, parts
from provisioner.values.errors import ProviderError
from provisioner.values.state import Device, Instance

SLOTS = 256
_SLOT = re.compile(r"mp\d+")
_NAMES_VOLUME = re.compile(r"rootfs|mp\d+|unused\d+")


@dataclass(frozen=True, slots=True)
class Disk:
    """A mount point that is a volume on a storage."""

    slot: str
    text: str
    volume: str
    path: str
    size: int
    backup: bool

    @property
    def storage(self) -> str:
        """The storage that it is on."""
        return self.volume.partition(":")[0]

    def option(self, *, backup: bool, size: int) -> str:
        """The mount point with another choice; its volume, and whatever has no word here, stay."""
        given = parts(self.text, "volume")
        return joined({**given, "backup": str(int(backup)), "size": f"{mebibytes(size)}M"}, "volume")


@dataclass(slots=True)
class Layout:
    """What has to be done to a container's mount points.

    ``options`` to be written (None: detached), ``sizes`` to be grown to, what the mark says then: ``mounts``, and
    volumes to ``discard``.
    """

    options: dict[str, str | None] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    mounts: list[Mount] = field(default_factory=list)
    discard: list[str] = field(default_factory=list)


def disks_of(config: Mapping[str, str]) -> dict[str, Disk]:
    """The mounted volumes of a configuration, by their slots; without its root file system."""
    disks = {}
    for slot, text in config.items():
        if not _SLOT.fullmatch(slot):
            continue
        values = parts(text, "volume")
        volume = values.get("volume", "/")
        if not volume.startswith("/"):
            size = bytes_of(values.get("size", ""))
            disks[slot] = Disk(slot, text, volume, values.get("mp", ""), size, values.get("backup") == "1")
    return disks


def volumes_of(config: Mapping[str, str]) -> frozenset[str]:
    """Every volume that a configuration names: of the root file system, of mount points, and unused ones."""
    volumes = set()
    for name, text in config.items():
        if not _NAMES_VOLUME.fullmatch(name):
            continue
        volume = parts(text, "volume").get("volume", "/")
        if not volume.startswith("/"):
            volumes.add(volume)
    return frozenset(volumes)


def of_the_host(config: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The folders and devices of the host that are mounted, each with its path in the container."""
    for slot, text in sorted(config.items()):
        if not _SLOT.fullmatch(slot):
            continue
        values = parts(text, "volume")
        source = values.get("volume", "")
        if source.startswith("/"):
            yield source, values.get("mp", "")


def devices_of(guest: Guest) -> tuple[Device, ...]:
    """The artifact volumes of a container, by name; one whose mount point somebody has removed is not there."""
    copies = _copies(guest)
    mounts = [mount for mount in _marked(guest) if mount.slot is None or mount.path in copies]
    mounts.sort(key=lambda mount: mount.name)
    return tuple(mount.device for mount in mounts)


def copy_sizes(guest: Guest) -> dict[str, int]:
    """The bytes of the disks that hold copies of artifact volumes, by the names of these volumes."""
    copies = _copies(guest)
    return {mount.volume: copies[mount.path].size for mount in _marked(guest) if mount.path in copies}


def extra_of(guest: Guest) -> tuple[Mapping[str, Any], ...]:
    """The other mounted disks by the names of the file; a storage that it left to us is left out."""
    asked = {str(entry["path"]): entry for entry in guest.mark.extra} if guest.mark else {}
    entries: list[Mapping[str, Any]] = []
    for path, disk in sorted(_own(guest).items()):
        entry = {"path": path, "size": disk.size, "storage": disk.storage, "backup": disk.backup}
        if path in asked:
            asked_size = asked[path]["size"]
            if mebibytes(asked_size) * MIB == disk.size:
                entry["size"] = asked_size
            if "storage" not in asked[path]:
                del entry["storage"]
        entries.append(entry)
    return tuple(entries)


def mounted(config: Mapping[str, str]) -> frozenset[str]:
    """The volumes that are mounted, but for the root file system's."""
    return frozenset(disk.volume for disk in disks_of(config).values())


def copies_in(guest: Guest) -> frozenset[str]:
    """The volumes that hold copies of artifacts."""
    return frozenset(disk.volume for disk in _copies(guest).values())


def laid_out(
    guest: Guest, wanted: Instance, room: Mapping[str, int], storage: str, busy: Collection[str] = ()
) -> Layout:
    """How a container's mount points become what is wanted; ``ProviderError`` for what would lose data.

    ``room``: the bytes that each artifact volume needs. ``storage``: where new disks go. ``busy``: slots that are
    taken until the container's next start.
    """
    taken = {*guest.config, *busy}
    slots = [f"mp{number}" for number in range(SLOTS)]
    free = iter([slot for slot in slots if slot not in taken])
    discard = list(guest.mark.discard) if guest.mark else []
    work = _Work(guest, storage, free, Layout(discard=discard))
    work.lay_out_devices(wanted.devices, room)
    if "mounts" in wanted.settings:
        work.lay_out_extra(wanted.settings["mounts"])
    return work.layout


@dataclass(slots=True)
class _Work:
    guest: Guest
    storage: str
    free: Iterator[str]
    layout: Layout

    def lay_out_devices(self, devices: Sequence[Device], room: Mapping[str, int]) -> None:
        """Each volume on a mount point of its own: that of its path, where there is one."""
        copies = _copies(self.guest)
        for device in devices:
            volume, path = device.properties["volume"], device.properties["path"]
            readonly = device.properties.get("readonly") == "true"
            slot = None
            if readonly:
                slot = self._slot(copies.pop(path, None), path, room[volume])
            self.layout.mounts.append(Mount(device.name, volume, path, readonly, slot))
        for disk in copies.values():
            self.layout.options[disk.slot] = None
            self.layout.discard.append(disk.volume)

    def lay_out_extra(self, mounts: Sequence[Mapping[str, Any]]) -> None:
        """Each of the file's disks; one that the file no longer has is detached, and Proxmox keeps it as unused."""
        own = _own(self.guest)
        for mount in mounts:
            disk = own.pop(str(mount["path"]), None)
            if disk is None:
                text = self._fresh(mount["path"], mount["size"], str(mount.get("storage", self.storage)))
                self.layout.options[next(self.free)] = f"{text},backup={int(mount['backup'])}"
            else:
                self._lay_out_again(disk, mount)
        for disk in own.values():
            self.layout.options[disk.slot] = None

    def _lay_out_again(self, disk: Disk, mount: Mapping[str, Any]) -> None:
        """A disk that is there already: larger, or with another choice of backup."""
        self._require_same(disk, mount)
        size = mebibytes(mount["size"]) * MIB
        if size > disk.size:
            self.layout.sizes[disk.slot] = size
        if mount["backup"] != disk.backup:
            self.layout.options[disk.slot] = disk.option(backup=mount["backup"], size=size)

    def _slot(self, disk: Disk | None, path: str, size: int) -> str:
        if disk is None:
            slot = next(self.free)
            self.layout.options[slot] = f"{self._fresh(path, size, self.storage)},backup=0"
            return slot
        if size > disk.size:
            self.layout.sizes[disk.slot] = mebibytes(size) * MIB
        return disk.slot

    def _fresh(self, path: object, size: int, storage: str) -> str:
        return f"{storage}:{gibibytes(size)},mp={path}"

    def _require_same(self, disk: Disk, wanted: Mapping[str, Any]) -> None:
        what = f"Unable to change container {self.guest.name}"
        if mebibytes(wanted["size"]) * MIB < disk.size:
            raise ProviderError(
                f"{what}: the disk at {disk.path} cannot become smaller",
                details=f"It has {disk.size} bytes, and the file says {wanted['size']}.",
                resolution=f"Write at least {disk.size // MIB}MiB, or another path for a new disk.",
            )
        if wanted.get("storage", disk.storage) != disk.storage:
            raise ProviderError(
                f"{what}: the disk at {disk.path} is on storage {disk.storage}",
                details=f"The file says {wanted['storage']}.",
                resolution=f"Move it: pct move-volume {self.guest.vmid} {disk.slot} {wanted['storage']}",
            )


def _marked(guest: Guest) -> tuple[Mount, ...]:
    return guest.mark.volumes if guest.mark else ()


def _copies(guest: Guest) -> dict[str, Disk]:
    """The disks that hold copies of artifact volumes, by their paths."""
    disks = disks_of(guest.config)
    copies: dict[str, Disk] = {}
    for mount in _marked(guest):
        disk = disks.get(mount.slot) if mount.slot else None
        if disk is not None and disk.path == mount.path:
            copies[mount.path] = disk
    return copies


def _own(guest: Guest) -> dict[str, Disk]:
    """The other mounted disks, by their paths."""
    copies = {disk.slot for disk in _copies(guest).values()}
    return {disk.path: disk for slot, disk in disks_of(guest.config).items() if slot not in copies}
