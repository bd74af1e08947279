"""The cluster in memory: nodes, storages, guests, pools. Tests set it up and look into it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from tests.doubles.proxmox.access import Access
from tests.doubles.proxmox.errors import died, forbidden
from tests.doubles.proxmox.faults import Faults
from tests.doubles.proxmox.firewall import Firewall
from tests.doubles.proxmox.guest import Guest
from tests.doubles.proxmox.guests import Containers, MemoryContainers, Template
from tests.doubles.proxmox.locks import Locks
from tests.doubles.proxmox.state import told
from tests.doubles.proxmox.storage import Storage
from tests.doubles.proxmox.tasks import Tasks

PASSWORD = "secret"  # of root@pam, in a cluster that is none
TEMPLATE = "debian-12-standard_12.7-1_amd64.tar.zst"
NEWER_TEMPLATE = "debian-13-standard_13.1-2_amd64.tar.zst"
VERSION = {"release": "9.2", "repoid": "14a22df3", "version": "9.2.11"}
GIB = 1 << 30


DEVICES = {"/dev/null": (1, 3), "/dev/fuse": (10, 229), "/dev/net/tun": (10, 200)}


@dataclass
class Node:
    """One node; ``devices`` are the device files of the host with their numbers.

    ``version``: what runs there; ``clock_ahead_s``: how wrong its clock is.
    """

    name: str
    ip: str
    online: bool = True
    cores: int = 8
    memory: int = 32 * GIB
    bridges: dict[str, str] = field(default_factory=lambda: {"vmbr0": "192.168.1.10/24"})
    devices: dict[str, tuple[int, int]] = field(default_factory=lambda: dict(DEVICES))
    timezone: str = "Europe/Berlin"
    clock_ahead_s: float = 0
    certificate_days: int = 700
    version: dict[str, str] = field(default_factory=lambda: dict(VERSION))


@dataclass
class Pool:
    """A pool; without members it is nothing but its name and comment."""

    comment: str = ""
    vms: set[int] = field(default_factory=set)


class World:
    """A cluster with three nodes, a directory and two disk storages, one template and ``root@pam``.

    ``latency_s``: how long every answer takes. ``stats_s``: how often a node tells the others about its guests.
    ``lock`` is held while a configuration changes. ``datacenter``: its options,
    taken apart. ``backup_jobs``: the numbers of guests that each backs up. ``firewall``: the datacenter's;
    ``firewalls``: those of guests, which copies take along (pve-firewall's ``Helpers.pm``).
    """

    def __init__(self, containers: Containers | None = None, nodes: int = 3) -> None:
        self.name = "homelab" if nodes > 1 else ""
        self.nodes = {f"pve{n}": Node(f"pve{n}", f"192.168.1.{9 + n}") for n in range(1, nodes + 1)}
        self.storages: dict[str, Storage] = {}
        self.appliances: dict[str, Template] = {TEMPLATE: Template(), NEWER_TEMPLATE: Template(systemd=257)}
        self.guests: dict[int, Guest] = {}
        self.pools: dict[str, Pool] = {}
        self.ha: set[int] = set()
        self.datacenter: dict[str, Any] = {}
        self.backup_jobs: dict[str, set[int]] = {}
        self.firewall = Firewall()
        self.firewalls: dict[int, Firewall] = {}
        self.access = Access()
        self.containers: Containers = containers or MemoryContainers()
        self.tasks = Tasks()
        self.locks = Locks()
        self.faults = Faults(self.tasks, self.locks, self.access)
        self.lock = threading.RLock()
        self.unanswered: list[str] = []
        self.auth_delay_s = 3.0
        self.latency_s = 0.0
        self.stats_s = 10.0
        self._told: dict[int, dict[str, object]] = {}
        self._ended = threading.Event()
        self._furnish()

    def _furnish(self) -> None:
        self.access.add_user("root@pam", PASSWORD)
        self.access.permissions.pool_of = self._pool_of_path
        self.add_storage(Storage("local", "dir", ("iso", "vztmpl", "backup")))
        self.add_storage(Storage("local-lvm", "lvmthin", ("rootdir", "images")))
        self.add_storage(Storage("local-zfs", "zfspool", ("rootdir", "images")))
        for node in self.nodes:
            self.storages["local"].add_template(node, TEMPLATE, Template())

    def add_storage(self, storage: Storage) -> Storage:
        """One more storage."""
        self.storages[storage.name] = storage
        return storage

    def add_guest(self, vmid: int, node: str, **config: str) -> Guest:
        """A guest as if it had always been there, with a disk of 8 GiB on ``local-lvm``."""
        volume = self.storages["local-lvm"].allocate(node, vmid, 8 * GIB)
        basis = {"arch": "amd64", "hostname": f"CT{vmid}", "memory": "512", "ostype": "debian", "unprivileged": "1"}
        guest = Guest(vmid, node, {**basis, "rootfs": f"{volume.volid},size=8G", **config})
        self.containers.create(vmid, Template(), guest.config)
        with self.lock:
            self.guests[vmid] = guest
        self.tell()
        return guest

    @property
    def is_quorate(self) -> bool:
        """Whether more than half of the nodes are there."""
        return sum(node.online for node in self.nodes.values()) * 2 > len(self.nodes)

    def check_quorum(self) -> None:
        """Refuse what half a cluster may not do."""
        if not self.is_quorate:
            raise died("cluster not ready - no quorum?")

    def guest(self, vmid: int, node: str) -> Guest:
        """A guest of a node; refuse one that is not there."""
        found = self.guests.get(vmid)
        if found is None or found.node != node:
            raise died(f"Configuration file 'nodes/{node}/lxc/{vmid}.conf' does not exist")
        return found

    def check_unused(self, vmid: int) -> None:
        """Refuse a number that a guest has, be it one that is only being made."""
        if vmid in self.guests:
            raise died(f"CT {vmid} already exists on node '{self.guests[vmid].node}'")

    def storage(self, name: str, node: str) -> Storage:
        """A storage that a node can use; refuse any other."""
        found = self.storages.get(name)
        if found is None:
            raise died(f"storage '{name}' does not exist")
        if found.nodes and node not in found.nodes:
            raise died(f"storage '{name}' is not available on node '{node}'")
        if not found.enabled:
            raise died(f"storage '{name}' is disabled")
        return found

    def check_pool(self, name: str) -> None:
        """Refuse a pool that is not there, in the words of those that put guests into pools."""
        if name not in self.pools:
            raise forbidden(f"pool '{name}' does not exist")

    def pool_of(self, vmid: int) -> str:
        """The pool that a guest is in, or nothing."""
        return next((name for name, pool in list(self.pools.items()) if vmid in pool.vms), "")

    def _pool_of_path(self, path: str) -> str:
        kind, _, name = path.strip("/").partition("/")
        return self.pool_of(int(name)) if kind == "vms" and name.isdecimal() else ""

    def remove_guest(self, vmid: int) -> None:
        """Remove the configuration and what speaks of it elsewhere: pool, permissions and firewall."""
        with self.lock:
            self.guests.pop(vmid, None)
            self.firewalls.pop(vmid, None)
            for pool in self.pools.values():
                pool.vms.discard(vmid)
            grants = self.access.permissions.grants
            grants -= {grant for grant in grants if grant.path == f"/vms/{vmid}"}

    def check_bridge(self, node: str, name: str) -> None:
        """Refuse a bridge that the node has not."""
        if name not in self.nodes[node].bridges:
            raise died(f"bridge '{name}' does not exist")

    def check_device(self, node: str, path: str) -> None:
        """Refuse a device that the node has not."""
        known = self.nodes[node].devices
        if path in known:
            return
        if any(PurePosixPath(path) in PurePosixPath(device).parents for device in known):
            raise died(f"{path} is not a device")
        raise died(f"Device {path} does not exist")

    def tell(self) -> None:
        """Let the nodes tell each other about their guests; those that are down say nothing."""
        with self.lock:
            up = [guest for guest in self.guests.values() if self.nodes[guest.node].online]
            self._told = {guest.vmid: told(self.containers, guest) for guest in up}

    def keep_telling(self) -> None:
        """Do so every ``stats_s`` until the world ends."""
        while not self._ended.wait(self.stats_s):
            self.tell()

    def stats(self, vmid: int) -> dict[str, object]:
        """What a guest's node last told about it; nothing about one that is newer than that."""
        return self._told.get(vmid, {})

    def close(self) -> None:
        """End all that goes on by itself."""
        self._ended.set()
        self.tasks.close()
