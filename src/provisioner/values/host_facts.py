"""What ``doctor`` found out about a host: one dataclass a kind, each with the host's name in the file.

``check_name`` is the word by which users know what was checked. ``problem`` is empty when all is well, ``hint`` says
what to do about it, ``details`` what the other side said. ``facts.of_kind`` gives the facts of one kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal


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
    """The room on a storage, in bytes, and what the lab uses it for."""

    check_name: ClassVar[str] = "storage"
    host: str
    name: str
    use: Literal["disks", "templates"]
    free: int
    total: int
    problem: str = ""
    hint: str = ""


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
)
