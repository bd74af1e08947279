"""Storages and the volumes on them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tests.doubles.proxmox.errors import ApiError, died
from tests.doubles.proxmox.guests import Template

GIB = 1 << 30


@dataclass
class Volume:
    """One volume; ``snapshots`` oldest first."""

    volid: str
    content: str
    form: str
    size: int
    vmid: int = 0
    ctime: int = field(default_factory=lambda: int(time.time()))
    template: Template | None = None
    snapshots: list[str] = field(default_factory=list)
    file_system: int = 0
    """The bytes of the file system on it, where that did not grow with it."""


@dataclass
class Storage:
    """One storage of the cluster; unless it is shared, each node has volumes of its own."""

    name: str
    kind: str
    content: tuple[str, ...]
    total: int = 100 * GIB
    nodes: tuple[str, ...] = ()
    shared: bool = False
    enabled: bool = True
    volumes: dict[str, dict[str, Volume]] = field(default_factory=dict)

    def on(self, node: str) -> dict[str, Volume]:
        """The volumes that a node sees."""
        return self.volumes.setdefault("" if self.shared else node, {})

    def used(self, node: str) -> int:
        """The bytes in use."""
        return sum(volume.size for volume in self.on(node).values())

    def free(self, node: str) -> int:
        """The bytes that are left."""
        return max(0, self.total - self.used(node))

    def add_template(self, node: str, name: str, template: Template, size: int = 120_000_000) -> str:
        """Put a template there; its volume id."""
        volid = f"{self.name}:vztmpl/{name}"
        form = "t" + name.rpartition(".tar.")[2]
        self.on(node)[volid] = Volume(volid, "vztmpl", form, size, template=template)
        return volid

    def allocate(self, node: str, vmid: int, size: int) -> Volume:
        """A new, empty disk of a guest; fails when it does not fit."""
        number = 0
        while self._disk(vmid, number) in self.on(node):
            number += 1
        volid = self._disk(vmid, number)
        if size > self.free(node):
            raise self._full(volid.rpartition("/")[2].rpartition(":")[2])
        form = "subvol" if self.kind == "zfspool" else "raw"
        volume = Volume(volid, "rootdir", form, size, vmid)
        self.on(node)[volid] = volume
        return volume

    def _disk(self, vmid: int, number: int) -> str:
        name = f"{'subvol' if self.kind == 'zfspool' else 'vm'}-{vmid}-disk-{number}"
        return f"{self.name}:{vmid}/{name}.raw" if self.kind == "dir" else f"{self.name}:{name}"

    def _full(self, disk: str) -> ApiError:
        """PVE's words are measured; what LVM, ZFS and the file system add to them is not."""
        if self.kind == "zfspool":
            return died(f"zfs error: cannot create 'rpool/data/{disk}': out of space")
        if self.kind == "dir":
            return died(f"unable to create image: '{disk}': No space left on device")
        return died(f"lvcreate 'pve/{disk}' error:   insufficient free space in 'pve/data'")

    def resize(self, node: str, volume: Volume, size: int) -> None:
        """Make a volume larger."""
        if size - volume.size > self.free(node):
            raise self._full(volume.volid.rpartition(":")[2])
        volume.size = size

    @property
    def can_snapshot(self) -> bool:
        """Whether its volumes can be remembered; raw files cannot."""
        return self.kind in ("lvmthin", "zfspool")

    def check_rollback(self, volume: Volume, name: str) -> None:
        """ZFS goes back to the newest snapshot only."""
        if self.kind == "zfspool" and volume.snapshots[-1:] != [name]:
            raise died(f"can't rollback, '{name}' is not most recent snapshot on '{volume.volid}'")

    def is_usable(self, node: str) -> bool:
        """Whether it is enabled, and for this node."""
        return self.enabled and (not self.nodes or node in self.nodes)

    def status(self, node: str) -> dict[str, object]:
        """What the lists of storages show of it: nothing of one that the node cannot use."""
        is_usable = self.is_usable(node)
        return {
            "type": self.kind,
            "content": ",".join(self.content),
            "total": self.total if is_usable else 0,
            "used": self.used(node) if is_usable else 0,
            "avail": self.free(node) if is_usable else 0,
            "shared": int(self.shared),
            "enabled": int(is_usable),
            "active": int(is_usable),
        }


def volume_entry(volume: Volume) -> dict[str, object]:
    """A volume as ``content`` lists it."""
    entry: dict[str, object] = {
        "volid": volume.volid,
        "content": volume.content,
        "format": volume.form,
        "size": volume.size,
        "ctime": volume.ctime,
    }
    if volume.vmid:
        entry["vmid"] = volume.vmid
    return entry
