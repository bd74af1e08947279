"""What a card of a host is: where it is plugged in, which driver has it, what it can, and which nodes lead to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Vendor = Literal["nvidia", "amd", "intel"]
VENDORS: dict[str, Vendor] = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}
"""By the number that PCI gives to each maker."""
DRIVERS: dict[Vendor, frozenset[str]] = {
    "nvidia": frozenset({"nvidia"}),
    "amd": frozenset({"amdgpu"}),
    "intel": frozenset({"i915", "xe"}),
}
"""Kernel drivers with which a card can compute for containers."""
CAPABILITIES = "/dev/nvidia-caps/"
"""Where NVIDIA's nodes are that say which parts of a divided card (MIG) somebody may use."""


@dataclass(frozen=True, slots=True)
class Node:
    """A character device of the host."""

    path: str
    major: int
    minor: int


@dataclass(frozen=True, slots=True)
class Link:
    """How a card's slot is wired: transfers per second in GT/s and lanes, as they are and as they could be."""

    speed: float
    width: int
    best_speed: float
    best_width: int

    @property
    def is_slow(self) -> bool:
        """Whether the slot has fewer lanes than the card. (Its speed counts not: an idle card slows down by itself.)"""
        return self.width < self.best_width


@dataclass(frozen=True, slots=True)
class Card:
    """One card. ``memory`` is its own in bytes, 0 where nobody says it; ``shared_memory`` what an APU may take besides.

    ``nodes`` are all that belong to it; ``missing`` those that should be there and are not.
    """

    pci: str
    vendor: Vendor
    name: str
    driver: str = ""
    uuid: str = ""
    memory: int = 0
    shared_memory: int = 0
    capability: str = ""
    driver_version: str = ""
    cuda: str = ""
    """The newest release of CUDA that its driver knows."""
    runtime: bool = False
    """Whether the host has NVIDIA's tools that lend containers the driver's user space."""
    nodes: tuple[Node, ...] = ()
    missing: tuple[str, ...] = ()
    link: Link | None = None

    @property
    def is_usable(self) -> bool:
        """Whether containers can be given it: its driver has it, and all its nodes are there."""
        return self.driver in DRIVERS[self.vendor] and not self.missing

    @property
    def needed(self) -> tuple[Node, ...]:
        """The nodes without which nothing computes: not those of capabilities, which not every host passes on."""
        return tuple(node for node in self.nodes if not node.path.startswith(CAPABILITIES))

    @property
    def title(self) -> str:
        """How it is called in messages: "NVIDIA GeForce RTX 3060 (0000:01:00.0)"."""
        return f"{self.name} ({self.pci})"

    def may_compute(self, least: tuple[int, int]) -> bool:
        """Return whether its compute capability is at least that one; True where nobody tells it."""
        known = tuple(int(part) for part in self.capability.split(".") if part.isdecimal())
        return not known or known >= least

    def obstacle(self) -> str:
        """Why it cannot be given to a container, empty when it can."""
        if self.driver == "vfio-pci":
            return "it is reserved for virtual machines (driver vfio-pci)"
        if self.driver not in DRIVERS[self.vendor]:
            wanted = " or ".join(sorted(DRIVERS[self.vendor]))
            return f"its driver is {self.driver or 'none'}, not {wanted}"
        return f"{' and '.join(self.missing)} are missing" if self.missing else ""


def described(card: Card) -> dict[str, Any]:
    """What a role is told of the card of its container; another driver is another card to it."""
    return {
        "pci": card.pci,
        "vendor": card.vendor,
        "name": card.name,
        "uuid": card.uuid,
        "memory_mib": card.memory // 2**20,
        "driver_version": card.driver_version,
        "capability": card.capability,
    }
