"""What was found out about running containers and their services: one dataclass a kind, found by its address.

``by_address`` gives the facts of one kind. Facts of hosts are in ``host_facts``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from provisioner.values.address import Address
from provisioner.values.errors import ProviderError

ACTIVE = "active"
"""The state of a unit when all is well."""
ASLEEP = "asleep"
"""The same of one that has ended because nobody asked its service, and that the next request starts."""
HTTP_OK = 200
"""What a health page answers when all is well."""
BUSY = "busy"
"""The same of a service that computes for somebody, and answers nobody else meanwhile: it is not broken."""
STILL_CLOSED = "it keeps people out: a run that was to change it has not come to its end"
"""What is said of a service that is closed while nobody changes its container."""


@dataclass(frozen=True, slots=True)
class UnitState:
    """systemd's word for a service's unit (ActiveState)."""

    address: Address
    state: str

    @property
    def is_active(self) -> bool:
        """Whether the unit runs."""
        return self.state == ACTIVE

    @property
    def is_asleep(self) -> bool:
        """Whether it has ended because nobody asked its service: the next request starts it."""
        return self.state == ASLEEP

    @property
    def is_well(self) -> bool:
        """Whether it is as it should be."""
        return self.is_active or self.is_asleep


@dataclass(frozen=True, slots=True)
class Health:
    """What a service's health page answered: an HTTP status, ``BUSY``, or the words of the failure."""

    address: Address
    answer: int | str

    @property
    def is_well(self) -> bool:
        """Whether the service works; one that is busy does."""
        return self.answer in (HTTP_OK, BUSY)

    @property
    def is_busy(self) -> bool:
        """Whether it computes for somebody, and answers nobody else meanwhile."""
        return self.answer == BUSY


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a service's proof noted of what computes; ``stale`` says why that counts no more, and is empty else."""

    address: Address
    verdict: str
    why: str
    stale: str


@dataclass(frozen=True, slots=True)
class Rest:
    """What is known of starts of a service, and of its sleep; times are seconds of the epoch, 0 for none.

    ``since`` when it is asleep, when it was ``proved``, and how long the slowest of its last starts took.
    """

    address: Address
    since: int
    proved: int
    start_s: float


@dataclass(frozen=True, slots=True)
class Closed:
    """A service that keeps people out: a run changes its container, or has not come to its end."""

    address: Address


Changed = tuple[str, str, str]
"""Kind, name and words of a thing that is managed and is not as it was."""


@dataclass(frozen=True, slots=True)
class RoleStamp:
    """The stamp of a role in its container, as the agent read it: ``problem`` alone, or what it was written for.

    ``inputs``, ``secrets`` and ``salt`` are those of ``gather.stamp_for``; ``changed``: what is managed and is not as
    it was then.
    """

    address: Address
    problem: str = ""
    inputs: Mapping[str, Any] | None = None
    secrets: Mapping[str, str] | None = None
    salt: str = ""
    changed: tuple[Changed, ...] = ()


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The roles that have a stamp in the container and are not asked for."""

    address: Address
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DamagedArtifacts:
    """The manifests in the container of what is mounted there and has other bytes than were stored."""

    address: Address
    manifests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoAgent:
    """Why a container cannot be looked into: it has no usable python3."""

    address: Address
    why: str


@dataclass(frozen=True, slots=True)
class Silent:
    """A container that does not answer, or not as it should."""

    address: Address
    error: ProviderError


@dataclass(frozen=True, slots=True)
class HostVolumes:
    """The artifact volumes of a host; the address is the host's name."""

    address: Address
    volumes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Proof:
    """How the proof of a service ended; without a ``failure`` it is proved."""

    address: Address
    failure: str = ""


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What a proof measured of the card's memory that a service takes."""

    address: Address
    bytes: int


@dataclass(frozen=True, slots=True)
class ProofStep:
    """One task of a service's proof: what was ``asked``, whether that went ``well``, and seconds.

    ``words``: of one that went well what came, line by line, where the task judged it; else why it did not go well.
    """

    address: Address
    asked: str
    well: bool
    words: str = ""
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Unstamped:
    """Why a container whose services are proved could not be stamped."""

    address: Address
    why: str


@dataclass(frozen=True, slots=True)
class Unmended:
    """What a role left as somebody else made it, in words."""

    address: Address
    changes: tuple[str, ...]


ContainerFact = (
    UnitState
    | Health
    | Verdict
    | Rest
    | Closed
    | RoleStamp
    | Leftovers
    | DamagedArtifacts
    | NoAgent
    | Silent
    | HostVolumes
    | Proof
    | DeviceMemory
    | ProofStep
    | Unstamped
    | Unmended
)
Kind = TypeVar("Kind")
ContainerKind = TypeVar("ContainerKind", bound=ContainerFact)


def of_kind(facts: Iterable[object], kind: type[Kind]) -> list[Kind]:
    """The facts of one kind, of containers or of hosts, in their order."""
    return [fact for fact in facts if isinstance(fact, kind)]


def by_address(facts: Iterable[ContainerFact], kind: type[ContainerKind]) -> dict[Address, ContainerKind]:
    """The facts of one kind, by whom they tell of; the last one counts."""
    return {fact.address: fact for fact in of_kind(facts, kind)}
