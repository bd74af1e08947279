"""The values that layers exchange: what a lab should be, what it is, and what was found out about it.

All are frozen. ``Fleet`` is used for the desired *and* the actual lab, so that a plan is a comparison of two equals.
Sizes are bytes. Addresses are ``container`` or ``container/service``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any, Literal

from provisioner.values.address import Address
from provisioner.values.declared import (
    LARGEST_PORT,
    STEP_BEHIND,
    Managed,
    Problem,
    Secret,
    port_behind,
    secrets_of,
)

__all__ = [
    "LARGEST_PORT",
    "LONGEST_DEVICE_NAME",
    "STEP_BEHIND",
    "STOP_S",
    "VOLUME_PREFIX",
    "Artifact",
    "ContainerStatus",
    "Device",
    "Execution",
    "Finding",
    "Fleet",
    "HostState",
    "Instance",
    "InstanceKind",
    "Managed",
    "Problem",
    "Run",
    "Screen",
    "Secret",
    "Service",
    "ServiceStatus",
    "Snapshot",
    "Status",
    "port_behind",
    "secrets_of",
    "short_digest",
]


class Status(StrEnum):
    """What a container is doing, in the words of the file format (not of one provider)."""

    RUNNING = "running"
    STOPPED = "stopped"
    FROZEN = "frozen"
    ERROR = "error"


class InstanceKind(StrEnum):
    """Why a container exists: it serves, or it was made to build an artifact and goes away after."""

    SERVING = "serving"
    BUILDER = "builder"


@dataclass(frozen=True, slots=True)
class Device:
    """Something attached to a container, in neutral words that each provider translates.

    ``volume``: properties ``volume`` (its name), ``path`` (in the container), ``readonly`` ("true"/"false").
    ``publish``: properties ``listen`` and ``connect`` ("ADDRESS:PORT"), ``protocol`` where that is not tcp, and
    ``proxy_protocol`` ("true") where each connection begins with the address that it comes from.
    ``gpu``: properties ``pci``, ``mode``, ``group`` (a name of the container's; without it the nodes are root's) and,
    where the host lends the driver's user space, ``runtime`` (which parts), ``require_driver`` and ``require_cuda``.
    ``node``: a device file of the host: properties ``path``, ``mode``, ``group``.
    """

    name: str
    kind: Literal["volume", "publish", "gpu", "node"]
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state of a container that its host keeps.

    ``created`` is the host's word for when (ISO 8601); ``volumes``: what was mounted then, and is needed to go back.
    """

    name: str
    created: str = ""
    volumes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Service:
    """One role on one container, with every variable that its role will get (``Secret`` at any depth)."""

    role: str
    container: str
    stage: str
    variables: Mapping[str, Any]
    port: int | None = None
    unit: str | None = None
    health: str | None = None
    needs: tuple[Address, ...] = ()
    """The services that it asks."""
    digest: str = ""
    """Of the role's files: another one means that the role may do something else."""
    managed: Managed = Managed()  # noqa: RUF009  # it is frozen
    unstampable: str = ""
    """Why no stamp can say that nothing has changed, so that Ansible has to look each time."""
    pictures: str = ""
    """The folder in the container where its proof keeps pictures of what it saw; empty where it sees nothing."""
    behind: str = ""
    """The role that stands before it and has its port; empty where its unit's own process listens there."""
    closed_by: str = ""
    """The unit that keeps people out of it while its container may go back; empty where nobody writes into it."""
    beside: bool | None = False
    """Whether a changed one is started beside it and takes over; None where only its role can tell."""
    estimates: Mapping[str, int] = field(default_factory=dict)
    """Variables of its role that are reckoned, such as what it takes of its card: nobody's wish, and in no stamp."""
    given: tuple[str, ...] = ()
    """Its options that say where what is built for it is mounted: nobody writes them."""
    after_change: Mapping[str, str] = field(default_factory=dict)
    """What people have to do, or lose, once an option has another value, by options."""

    @property
    def address(self) -> Address:
        """``container/service``."""
        return Address.of(self.container, self.role)

    @property
    def own_port(self) -> int | None:
        """The port on which its unit's own process listens."""
        return port_behind(self.port) if self.behind and self.port is not None else self.port


STOP_S = 30.0
"""So long a container has to stop, beside what its services drain."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A container: desired (``status`` and ``address`` unset) or observed (all that the host says)."""

    name: str
    host: str
    lab: str
    image: str
    cpu: int | None = None
    memory: int | None = None
    disk: int | None = None
    nesting: bool = False
    devices: tuple[Device, ...] = ()
    kind: InstanceKind = InstanceKind.SERVING
    services: tuple[Service, ...] = field(default=(), compare=False)
    base: Service | None = field(default=None, compare=False)
    """What every container gets before its services; no service of the file."""
    status: Status | None = field(default=None, compare=False)
    address: str | None = field(default=None, compare=False)
    snapshots: tuple[Snapshot, ...] = field(default=(), compare=False)
    """What its host keeps of it, the oldest first."""
    settings: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """What only its kind of host knows, by the words of the file's block for that kind; one that is desired holds only
    what the file decides, and only that is compared."""
    adopt: bool = field(default=False, compare=False)
    """Desired only: one of that name that is there and nobody's is made this lab's."""
    artifact_disks: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Observed only: the bytes of the container's own disks that hold copies of artifact volumes, by these volumes;
    nothing where a host lends them to all of its containers."""
    reaches: tuple[str, ...] | None = field(default=None, compare=False)
    """What its host lets it reach ("HOST:PORT") beside all that is public; None: it is not held to anything."""
    refused_by: str = field(default="", compare=False)
    """Observed only: what of its host refuses the rules that would hold it to that."""
    stop_s: float = field(default=STOP_S, compare=False)
    """So long it has to stop, until it is stopped by force: its services may finish the answers that they give."""

    @property
    def roles(self) -> tuple[Service, ...]:
        """Everything that Ansible does in it, in this order."""
        return (*((self.base,) if self.base else ()), *self.services)


VOLUME_PREFIX = "provision-"
LONGEST_DEVICE_NAME = 63
"""Characters that Incus takes for the name of a device; of 64 it says "Name must be 1-63 characters long"."""


def short_digest(digest: str) -> str:
    """As much of a digest as names of volumes, devices and folders bear."""
    return digest[:16]


@dataclass(frozen=True, slots=True)
class Artifact:
    """Something large that is made once per host, by digest, and mounted read-only where it is needed.

    ``role``'s ``tasks/build.yml`` makes it with ``variables`` in a throwaway container of ``image``, with the volume
    mounted read-write at ``path``; consumers mount the same volume read-only at ``mounted_at``, which its digest is
    part of, so that what comes and what goes can be there at once.
    """

    name: str
    host: str
    digest: str
    role: str
    path: str
    image: str
    variables: Mapping[str, Any] = field(default_factory=dict, compare=False)
    cacheable: bool = True
    log: str = field(default="", compare=False)
    """The file in its builder where its build writes how far it is, where there is one."""
    resumable: bool = field(default=False, compare=False)
    """Whether a build that was ended goes on in the same builder: it is a download, and most of it may be there."""
    made_for: str = field(default="", compare=False)
    """What it is made for beyond what is usual, in words that follow "made "."""
    minutes: int = field(default=0, compare=False)
    """So long one processor compiles it, about."""
    download: int = field(default=0, compare=False)
    """The bytes that are fetched for it, as far as they are known."""
    builder_settings: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The ``settings`` of its builder."""
    builder_address: str = field(default="", compare=False)
    """The fixed address that its builder shares with others, which only one of them can have at a time."""
    builder_beside: str = field(default="", compare=False)
    """The container of a fixed address in whose network its builder asks DHCP; empty where DHCP surely answers."""
    mounted_at: str = field(kw_only=True)

    @property
    def volume(self) -> str:
        """The name of its storage volume: made of its name and its digest, so that one name is one content."""
        return f"{VOLUME_PREFIX}{self.name.replace('_', '-')}-{short_digest(self.digest)}"

    @property
    def device_name(self) -> str:
        """The name of the device that mounts it; no two artifacts in a container have the same."""
        name = self.volume.removeprefix(VOLUME_PREFIX)
        if len(name) <= LONGEST_DEVICE_NAME:
            return name
        told_apart = sha256(self.volume.encode()).hexdigest()[:16]
        return f"{name[: LONGEST_DEVICE_NAME - len(told_apart) - 1]}-{told_apart}"

    @property
    def builder(self) -> str:
        """The name of the throwaway container that makes it: another one for each volume of each host."""
        return f"provision-build-{sha256(f'{self.host}/{self.volume}'.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class HostState:
    """What a provider says of one host of the lab, beside the containers that are ours."""

    name: str
    architecture: str = "x86_64"
    processor_flags: frozenset[str] = frozenset()
    """The flags that all its processors have, as ``/proc/cpuinfo`` names them; empty where it does not tell."""
    unmanaged: frozenset[str] = frozenset()
    owners: Mapping[str, str] = field(default_factory=dict)
    """Whose those of them are whose names the file wants, in words, by the containers' names; empty: no lab's."""
    images: frozenset[str] = frozenset()
    volumes: frozenset[str] = frozenset()
    """Names of artifact volumes that are complete (marked ready); a half-made one is not listed."""
    published: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """The host's ports (protocol and number) that containers of others publish, each with whose it is in words."""
    adoptable: Mapping[str, Instance] = field(default_factory=dict)
    """Containers without any lab's mark, of those that were asked for by name."""
    image_hint: str = "Run: provision host prepare --image {image}"
    """What to do where an image is missing."""
    confines: bool = False
    """Whether it may hold containers to what they reach, with rules outside of them."""
    moved: Mapping[str, str] = field(default_factory=dict)
    """Containers of this lab that are out of reach, by name: where they are ("on node …", "in project …")."""
    moved_hints: Mapping[str, str] = field(default_factory=dict)
    """What to do about each of them."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """A lab: its containers and artifacts, sorted by (host, name); ``hosts`` is filled in what was observed only."""

    lab: str
    instances: tuple[Instance, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    hosts: Mapping[str, HostState] = field(default_factory=dict)

    def instance(self, name: str) -> Instance | None:
        """The container of that name, or None."""
        return next((one for one in self.instances if one.name == name), None)

    def absence(self, name: str, file: object) -> tuple[str, str]:
        """What became of a container of ``file`` that is not among these, and what to do about it."""
        for host in self.hosts.values():
            if name in host.moved:
                return f"it is {host.moved[name]} now", host.moved_hints[name]
        return "it does not exist yet", f"Run: provision up {file} {name}"


@dataclass(frozen=True, slots=True)
class Execution:
    """What a command inside a container gave: its exit code and both streams as bytes."""

    returncode: int
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be, worded for the user, with what would mend it."""

    subject: Address
    message: str
    details: str = ""
    resolution: str = ""


@dataclass(frozen=True, slots=True)
class Screen:
    """A picture that a proof took: its name, what it was judged to show, and the PNG file in which it is kept here.

    ``at``: when it was taken by its container's clock (ISO 8601); empty where nobody tells.
    """

    name: str
    shows: str
    file: str
    at: str = ""


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """How one service does: systemd's word for its unit, its health page's answer (None: not asked), what computes.

    ``health``: "healthy", "busy" or "asleep" (which are healthy), "unhealthy", or "unknown" where nobody can be asked;
    ``asleep`` says since when.

    ``processor``: "CPU", "GPU" (proved), "device named, unproven", or nothing where it is not known; ``why`` says what
    speaks for it, with figures.
    """

    role: str
    unit: str = "unknown"
    healthy: bool | None = None
    port: int | None = None
    processor: str = ""
    why: str = ""
    screens: tuple[Screen, ...] = ()
    health: str = "unknown"
    asleep: str = ""


@dataclass(frozen=True, slots=True)
class ContainerStatus:
    """One container of the lab as it is now; ``status`` None: in the file, not on the host.

    ``drift`` names the attributes that differ from the file; ``orphan``: it bears the mark and is not in the file.
    """

    name: str
    host: str
    status: Status | None = None
    address: str | None = None
    services: tuple[ServiceStatus, ...] = ()
    drift: tuple[str, ...] = ()
    orphan: bool = False
    elsewhere: str = ""
    """Where on its host it was moved to, when that is out of the driver's reach; ``status`` is None then."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run by its journal: of which verb, from when until when (ISO 8601; empty where it was cut off), how it ended.

    ``error``: the kind of error with which it ended; ``done`` and ``failed``: works with their targets, in words.
    """

    verb: str
    began: str
    ended: str
    error: str
    done: tuple[str, ...]
    failed: tuple[str, ...]

    @property
    def outcome(self) -> str:
        """How it ended, in a word or two."""
        if not self.ended:
            return "did not come to its end"
        return _OUTCOMES.get(self.error, "failed")


_OUTCOMES = {
    "": "done",
    "interrupted": "interrupted",
    "InputError": "refused: the file or the command was wrong",
    "PreflightError": "refused before anything was touched",
    "UnavailableError": "a host did not answer",
    "VerificationError": "a proof failed",
    "LockedError": "another run held the lab",
    "ProviderError": "a host refused or failed",
    "ReadyTimeoutError": "a container did not come up in time",
    "PlaybookError": "an Ansible run failed",
    "CommandKilledError": "a command on a host was killed",
    "ImpossiblePlanError": "refused before anything was touched",
}
"""How a run ended, by the name of its error in the journal."""
