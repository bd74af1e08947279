"""What is known of a host: its memory and its room for disks, and what ``doctor`` found out about it.

Of what ``doctor`` found out there is one dataclass a kind, each with the host's name in the file. ``check_name`` is the
word by which users know what was checked. ``problem`` is empty when all is well, ``hint`` says what to do about it,
``details`` what the other side said. ``facts.of_kind`` gives the facts of one kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

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


@dataclass(frozen=True, slots=True)
class HostAnswers:
    """Whether the host answers, and lets us in."""

    check_name: ClassVar[str] = "answers"
    host: str
    problem: str = ""
    hint: str = ""
    details: str = ""


@dataclass(frozen=True, slots=True)
class HostVersion:
    """The program that runs the host's containers, and its version.

    ``oldest``: the first that passes devices to containers, where some do not, with how the program is upgraded.
    """

    check_name: ClassVar[str] = "version"
    host: str
    program: str
    version: str
    oldest: str = ""
    upgrade: str = ""


@dataclass(frozen=True, slots=True)
class NodeState:
    """Whether a node is one of its cluster, up, and may be written to."""

    check_name: ClassVar[str] = "node"
    host: str
    name: str
    problem: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ClusterMembers:
    """The other nodes of the host's cluster that are off; ``command`` tells why."""

    check_name: ClassVar[str] = "members"
    host: str
    off: tuple[str, ...]
    is_quorate: bool
    command: str


@dataclass(frozen=True, slots=True)
class StorageRoom:
    """The room on a storage, in bytes, and what the lab uses it for; ``enlarge``: what to do where that is little."""

    check_name: ClassVar[str] = "storage"
    host: str
    name: str
    use: Literal["disks", "templates"]
    free: int
    total: int
    problem: str = ""
    hint: str = ""
    enlarge: str = "Delete what is not needed (old snapshots, backups), or enlarge it."


@dataclass(frozen=True, slots=True)
class ImageState:
    """Whether the host has an image that the file needs, or can download it."""

    check_name: ClassVar[str] = "image"
    host: str
    name: str
    state: Literal["there", "downloadable", "missing"]
    hint: str = ""


@dataclass(frozen=True, slots=True)
class BridgeState:
    """Whether the bridge is there that containers are connected to."""

    check_name: ClassVar[str] = "bridge"
    host: str
    name: str
    problem: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ApiRights:
    """The rights that ``holder`` (a user or a token) lacks, each with its path in words."""

    check_name: ClassVar[str] = "rights"
    host: str
    holder: str
    lacking: tuple[str, ...] = ()
    hint: str = ""


@dataclass(frozen=True, slots=True)
class TagRules:
    """Whether the tags may be set by which containers are found."""

    check_name: ClassVar[str] = "tags"
    host: str
    problem: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class SshState:
    """Whether ssh leads to the host; ``destination`` is empty where none was given."""

    check_name: ClassVar[str] = "ssh"
    host: str
    destination: str
    problem: str = ""
    hint: str = ""
    details: str = ""


@dataclass(frozen=True, slots=True)
class ClockSkew:
    """The seconds that the host's clock is ahead of ours (negative: behind), as far as that is certain."""

    check_name: ClassVar[str] = "clock"
    host: str
    ahead_s: float


@dataclass(frozen=True, slots=True)
class CertificateAge:
    """The certificate that the host shows to its clients, and for how many days it is still good."""

    check_name: ClassVar[str] = "certificate"
    host: str
    file: str
    days_left: float


@dataclass(frozen=True, slots=True)
class MachineState:
    """One thing of the machine on which provision runs: what was seen, and what is wrong with it.

    ``warning``: what to do about what was seen, where that may be as it should be.
    """

    host: str
    check_name: str
    seen: str
    problem: str = ""
    hint: str = ""
    details: str = ""
    warning: str = ""


HostFact = (
    HostAnswers
    | HostVersion
    | NodeState
    | ClusterMembers
    | StorageRoom
    | ImageState
    | BridgeState
    | ApiRights
    | TagRules
    | SshState
    | ClockSkew
    | CertificateAge
    | MachineState
)
