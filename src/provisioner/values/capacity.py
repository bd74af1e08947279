"""The memory of a host and its room for disks, and what containers ask for beyond them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from provisioner.values.errors import PreflightError
from provisioner.values.quantities import size_text
from provisioner.values.state import Instance

GIB = 2**30
UNKNOWN = 2**63
"""The room of a storage that does not tell it, in bytes."""
MEMORY_HINT = "Write less memory: where containers use more at once than there is, the kernel ends programs."
DISK_HINT = "Write smaller disks, delete what is not needed there (old snapshots, backups), or enlarge the storage."


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk that is made or enlarged: its size, and by how many bytes it is larger than the one that is there."""

    container: str
    size: int
    more: int


@dataclass(frozen=True, slots=True)
class Pool:
    """A storage of a host for disks, in bytes. ``is_thin``: a disk takes what is written to it, not its whole size."""

    name: str
    total: int
    free: int
    is_thin: bool = True
    disks: tuple[Disk, ...] = ()

    def with_disk(self, disk: Disk) -> Pool:
        """Return the storage with one disk more."""
        return replace(self, disks=(*self.disks, disk))

    def impossible(self) -> Iterator[str]:
        """Yield in words which of its disks it cannot have."""
        for disk in self.disks:
            is_made = disk.more == disk.size  # one that grows has its size already, of which little may be written
            if disk.size > self.total and (is_made or not self.is_thin):
                has = f"storage {self.name} has {self.total / GIB:.1f} GiB in all"
                yield f"{disk.container}: its disk is to have {size_text(disk.size)}, {has}"
        if not self.is_thin:
            yield from self.beyond_free()

    def beyond_free(self) -> Iterator[str]:
        """Yield in words that its disks may take more than is free, where they may."""
        more = sum(disk.more for disk in self.disks)
        if more > self.free:
            names = ", ".join(dict.fromkeys(disk.container for disk in self.disks))
            has = f"storage {self.name} has {self.free / GIB:.1f} of {self.total / GIB:.1f} GiB free"
            yield f"{names}: {more / GIB:.1f} GiB of disks are new, {has}"


@dataclass(frozen=True, slots=True)
class Capacity:
    """The memory of a host, 0 where it does not tell, and the storages on which disks are made or enlarged."""

    memory: int = 0
    pools: tuple[Pool, ...] = ()

    def require_room(self, host: str) -> list[str]:
        """Return in words which storages run full before their disks do.

        Raises ``PreflightError`` for disks that the host cannot have.
        """
        impossible = list[str]()
        tight = list[str]()
        for pool in self.pools:
            impossible += pool.impossible()
            tight += pool.beyond_free()
        if impossible:
            raise PreflightError(
                f"Unable to make disks of that size on host {host}",
                details="\n".join(impossible),
                resolution=DISK_HINT,
            )
        return tight

    def short_memory(self, containers: Iterable[Instance]) -> str:
        """Return in words that these containers may take more memory than the host has; empty where they fit."""
        limits = {container.name: container.memory for container in containers if container.memory}
        total = sum(limits.values())
        if not 0 < self.memory < total:
            return ""
        largest = max(limits, key=limits.__getitem__)
        wanted = f"containers may take {total / GIB:.1f} GiB of memory together, of {self.memory / GIB:.1f} GiB"
        return f"{wanted} that are there; the largest is {largest} ({size_text(limits[largest])})"
