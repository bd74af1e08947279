"""Disks that are mounted in a container: the file's ``mounts``, and the copies of artifact volumes. Pure.

Folders and devices of the host that somebody mounted by hand have no word here, and are left as they are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from provisioner.errors import ProviderError
from provisioner.providers.proxmox.guest import Guest
from provisioner.providers.proxmox.marks import Mount
from provisioner.providers.proxmox.properties import MIB, bytes_of, gibibytes, joined, mebibytes, parts
from provisioner.state import Device, Instance

SLOTS = 256
_SLOT = re.compile(r"mp\d+")
_UNUSED = re.compile(r"unused\d+")


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
    found = {}
    for slot, text in config.items():
        given = parts(text, "volume") if _SLOT.fullmatch(slot) else {}
        if given and not given.get("volume", "/").startswith("/"):
            size, backup = bytes_of(given.get("size", "")), given.get("backup") == "1"
            found[slot] = Disk(slot, text, given["volume"], given.get("mp", ""), size, backup)
    return found


def volumes_of(config: Mapping[str, str]) -> frozenset[str]:
    """Every volume that a configuration names: of the root file system, of mount points, and unused ones."""
    found = set()
    for name, text in config.items():
        if name == "rootfs" or _SLOT.fullmatch(name) or _UNUSED.fullmatch(name):
            found.add(parts(text, "volume").get("volume", "/"))
    return frozenset(volume for volume in found if not volume.startswith("/"))


def of_the_host(config: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The folders and devices of the host that are mounted, each with its path in the container."""
    for slot, text in sorted(config.items()):
        given = parts(text, "volume") if _SLOT.fullmatch(slot) else {}
        if given.get("volume", "").startswith("/"):
            yield given["volume"], given.get("mp", "")


def devices_of(guest: Guest) -> tuple[Device, ...]:
    """The artifact volumes of a container, by name; one whose mount point somebody has removed is not there."""
    copies = _copies(guest)
    found = [one.device for one in _marked(guest) if one.slot is None or one.path in copies]
    return tuple(sorted(found, key=lambda one: one.name))


def extra_of(guest: Guest) -> tuple[Mapping[str, Any], ...]:
    """The other mounted disks in the file's words; a storage that it left to us is left out."""
    asked = {str(one["path"]): one for one in guest.mark.extra} if guest.mark else {}
    found: list[Mapping[str, Any]] = []
    for path, disk in sorted(_own(guest).items()):
        said = asked.get(path, {})
        size = said["size"] if said and mebibytes(said["size"]) * MIB == disk.size else disk.size
        entry = {"path": path, "size": size, "storage": disk.storage, "backup": disk.backup}
        if said and "storage" not in said:
            del entry["storage"]
        found.append(entry)
    return tuple(found)


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
    free = (slot for slot in (f"mp{number}" for number in range(SLOTS)) if slot not in taken)
    work = _Work(guest, storage, free, Layout(discard=list(guest.mark.discard) if guest.mark else []))
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
        for one in mounts:
            disk = own.pop(str(one["path"]), None)
            if disk is None:
                text = self._fresh(one["path"], one["size"], str(one.get("storage", self.storage)))
                self.layout.options[next(self.free)] = f"{text},backup={int(one['backup'])}"
                continue
            self._require_same(disk, one)
            wish = mebibytes(one["size"]) * MIB
            if wish > disk.size:
                self.layout.sizes[disk.slot] = wish
            if one["backup"] != disk.backup:
                self.layout.options[disk.slot] = disk.option(backup=one["backup"], size=wish)
        self.layout.options |= dict.fromkeys((disk.slot for disk in own.values()), None)

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
    slots = [one for one in _marked(guest) if one.slot is not None]
    return {one.path: disks[one.slot] for one in slots if one.slot in disks and disks[one.slot].path == one.path}


def _own(guest: Guest) -> dict[str, Disk]:
    """The other mounted disks, by their paths."""
    copies = {disk.slot for disk in _copies(guest).values()}
    return {disk.path: disk for slot, disk in disks_of(guest.config).items() if slot not in copies}
