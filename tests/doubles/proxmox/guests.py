"""What a container is: one small interface, and containers that exist only in memory.

Everything else in the double is about configurations, permissions and tasks; only here something runs. To attach the
double to real containers, write another ``Containers`` and give it to ``World``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Template:
    """What a template unpacks to; ``systemd`` 0 stands for an init that is none."""

    ostype: str = "debian"
    systemd: int = 252
    corrupt: bool = False


@dataclass(frozen=True)
class Interface:
    """An interface as ``ip address`` shows it inside a container, addresses with their prefix."""

    name: str
    mac: str
    addresses: tuple[str, ...] = ()


class Containers(Protocol):
    """What the double needs of containers. A failure is an ``ApiError``: its text ends the task."""

    def create(self, vmid: int, template: Template, config: Mapping[str, str]) -> None:
        """Unpack a template; ``config`` are the options that it was asked for with."""

    def copy(self, vmid: int, newid: int, snapshot: str) -> None:
        """A new container with another's files, as they are or as they were at a snapshot."""

    def remove(self, vmid: int) -> None:
        """Delete what there is of a container; nothing is no error."""

    def configure(self, vmid: int, config: Mapping[str, str]) -> None:
        """Its options have changed, running or not."""

    def start(self, vmid: int, config: Mapping[str, str]) -> None:
        """Start it."""

    def stop(self, vmid: int) -> None:
        """Kill it."""

    def shutdown(self, vmid: int, timeout_s: int) -> bool:
        """Ask it to end; whether it did."""

    def running_s(self, vmid: int) -> float | None:
        """For how long it has been running, or nothing when it is not."""

    def snapshot(self, vmid: int, name: str) -> None:
        """Remember its files."""

    def rollback(self, vmid: int, name: str) -> None:
        """Put back what was remembered."""

    def forget(self, vmid: int, name: str) -> None:
        """Remember no longer."""

    def interfaces(self, vmid: int, nets: Mapping[str, Mapping[str, str]]) -> list[Interface]:
        """Its network from inside; ``nets`` are the parts of its ``net0``, ``net1`` ..."""


@dataclass
class Box:
    """A container in memory. ``deaf`` ones do not end when asked to."""

    files: dict[str, str] = field(default_factory=dict)
    started: float | None = None
    deaf: bool = False
    snapshots: dict[str, dict[str, str]] = field(default_factory=dict)


class MemoryContainers:
    """Containers of which nothing runs."""

    def __init__(self) -> None:
        self.boxes: dict[int, Box] = {}
        self.dhcp_s = 0.2

    def create(self, vmid: int, template: Template, config: Mapping[str, str]) -> None:
        """A box with the few files that tell where it came from."""
        del config
        self.boxes[vmid] = Box({"/etc/os-release": f"ID={template.ostype}"})

    def copy(self, vmid: int, newid: int, snapshot: str) -> None:
        """A box with the same files; snapshots do not come along."""
        source = self.boxes[vmid]
        self.boxes[newid] = Box(dict(source.snapshots[snapshot] if snapshot else source.files))

    def remove(self, vmid: int) -> None:
        """The box is gone."""
        self.boxes.pop(vmid, None)

    def configure(self, vmid: int, config: Mapping[str, str]) -> None:
        """Nothing of a box follows from its options."""
        del vmid, config

    def start(self, vmid: int, config: Mapping[str, str]) -> None:
        """Its clock runs."""
        del config
        self.boxes[vmid].started = time.monotonic()

    def stop(self, vmid: int) -> None:
        """Its clock stands still."""
        self.boxes[vmid].started = None

    def shutdown(self, vmid: int, timeout_s: int) -> bool:
        """Ends at once, or never when it is deaf; then the time is not waited out here."""
        del timeout_s
        if not self.boxes[vmid].deaf:
            self.stop(vmid)
        return not self.boxes[vmid].deaf

    def running_s(self, vmid: int) -> float | None:
        """The clock."""
        box = self.boxes.get(vmid)
        return None if box is None or box.started is None else time.monotonic() - box.started

    def snapshot(self, vmid: int, name: str) -> None:
        """A copy of the files."""
        self.boxes[vmid].snapshots[name] = dict(self.boxes[vmid].files)

    def rollback(self, vmid: int, name: str) -> None:
        """The copy's files."""
        self.boxes[vmid].files = dict(self.boxes[vmid].snapshots[name])

    def forget(self, vmid: int, name: str) -> None:
        """The copy is gone."""
        self.boxes[vmid].snapshots.pop(name, None)

    def interfaces(self, vmid: int, nets: Mapping[str, Mapping[str, str]]) -> list[Interface]:
        """Static addresses at once; with DHCP only the link-local one until ``dhcp_s`` have passed."""
        found = [Interface("lo", "00:00:00:00:00:00", ("127.0.0.1/8", "::1/128"))]
        uptime = self.running_s(vmid) or 0
        for index, net in enumerate(nets.values()):
            addresses = ["fe80::be24:11ff:fe00:1/64"]
            given = net.get("ip", "manual")
            if given == "dhcp" and uptime >= self.dhcp_s:
                addresses.insert(0, f"10.0.{index}.{vmid % 250 + 2}/24")
            elif "/" in given:
                addresses.insert(0, given)
            found.append(Interface(net["name"], net.get("hwaddr", "").lower(), tuple(addresses)))
        return found
