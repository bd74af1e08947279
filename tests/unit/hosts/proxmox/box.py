"""The driver on the double, with containers in memory; what works over ssh is played by ``Artifacts``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from provisioner.hosts.proxmox import ProxmoxProvider, volumes
from provisioner.hosts.proxmox.access import Access
from provisioner.values.errors import ProviderError
from provisioner.values.state import Device, Instance, Secret
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.guest import Guest
from tests.doubles.proxmox.guests import MemoryContainers
from tests.doubles.proxmox.world import PASSWORD

LAB = "home"
IMAGE = "debian/12"
GIB, MIB = 2**30, 2**20
BY_PASSWORD: dict[str, Any] = {"token_id": None, "token_secret": None, "password": Secret("password", PASSWORD)}
"""Of root@pam itself, in the place of the token."""


def driver(access: Access, **changes: Any) -> ProxmoxProvider:
    """The driver for a host's page with other words; it gives up on locks at once."""
    made = ProxmoxProvider("box", access=dataclasses.replace(access, **changes))
    made.client.patience_s = 0
    return made


def disks(pve: Double) -> list[str]:
    """The disks of guests on all storages of the node."""
    found = (volid for storage in pve.world.storages.values() for volid, one in storage.on("pve1").items() if one.vmid)
    return sorted(found)


def wanted(name: str = "one", **attributes: Any) -> Instance:
    """A container of the lab."""
    return Instance(name, "box", attributes.pop("lab", LAB), attributes.pop("image", IMAGE), **attributes)


def guest(pve: Double, name: str = "one") -> Guest:
    """The container of that name in the double."""
    return next(one for one in pve.world.guests.values() if one.config.get("hostname") == name)


def running(pve: Double, name: str = "one") -> bool:
    """Whether it runs."""
    return pve.world.containers.running_s(guest(pve, name).vmid) is not None


def mac(pve: Double, name: str = "one") -> str:
    """The address of its card."""
    return guest(pve, name).config["net0"].partition("hwaddr=")[2].partition(",")[0]


def memory(pve: Double) -> MemoryContainers:
    """What plays the containers."""
    assert isinstance(pve.world.containers, MemoryContainers)
    return pve.world.containers


def mount(volume: str, *, readonly: bool = True, path: str = "/srv/data", name: str = "data") -> Device:
    """An artifact volume."""
    return Device(name, "volume", {"volume": volume, "path": path, "readonly": str(readonly).lower()})


class Artifacts:
    """Volumes on the node by their sizes, and what was filled; takes the place of all that ``volumes`` does by ssh."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: dict[str, int] = {}
        self.filled: list[tuple[int, str, str]] = []
        self.folders: list[tuple[int, str]] = []
        self.packed: dict[str, tuple[int, str]] = {}
        self.deleted: list[str] = []
        played: dict[str, Callable[..., Any]] = {
            "ready": lambda _shell: frozenset(self.sizes),
            "size": self._size,
            "fill": lambda _shell, vmid, volume, path: self.filled.append((vmid, volume, path)),
            "open_folder": lambda _shell, vmid, path: self.folders.append((vmid, path)),
            "_run": self._run,
        }
        for name, function in played.items():
            monkeypatch.setattr(volumes, name, function)

    def _run(self, _shell: object, _what: str, script: str, folder: str, *arguments: str) -> None:
        """What is done with a volume on the node: packed of a container's folder, or deleted."""
        volume = folder.rpartition("/")[2]
        if script == volumes._DELETE_SCRIPT:
            self.deleted.append(volume)
            return
        assert script == volumes._PACK_SCRIPT
        self.packed[volume] = (int(arguments[0]), arguments[1])

    def _size(self, _shell: object, volume: str) -> int:
        if volume not in self.sizes:
            raise ProviderError(f"Unable to use volume {volume}", details="There is no such volume.")
        return self.sizes[volume]
