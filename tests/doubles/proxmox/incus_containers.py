"""Containers of the double that are real: each is one of the lab's Incus, on the lab's own bridge.

A disk that is mounted is a folder of the root file system, so that it is there, can be written to, and follows
snapshots and rollbacks. Limits of memory and processors are the double's word only. Each container bears the process
that made it: what a killed test run has left is removed when the next one begins.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provisioner.hosts.incus.api import Client, Endpoint, WireError
from tests.doubles.proxmox.errors import died
from tests.doubles.proxmox.guest import parts, volumes
from tests.doubles.proxmox.guests import Interface, Template
from tests.doubles.proxmox.options import DEVICE
from tests.lab.incus import Lab

MAKER = "user.pve-double.maker"
IMAGES = {("debian", 252): "debian/12", ("debian", 257): "debian/13"}
PREFIX = "pve"
FROZEN = "Frozen"

Mounts = dict[str, str]
"""The volumes that are mounted, by their paths; an empty one stands for whatever comes first."""


class IncusContainers:
    """Real containers; ``close`` removes all that were made."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._client = Client(Endpoint(str(lab.socket)))
        self._run = secrets.token_hex(3)
        self._started: dict[int, float] = {}
        self._inits: dict[int, int] = {}
        self._mounts: dict[int, Mounts] = {}
        self._kept: dict[tuple[int, str], Mounts] = {}
        self._made: set[int] = set()
        self.configs: Path | None = None
        """Where a file for each container's configuration lies, as on its node."""
        self.files: Mapping[str, tuple[int, int]] = {}
        """The device files of the node, with their numbers."""
        self._sweep()

    @property
    def name_prefix(self) -> str:
        """What stands before a container's number in its name."""
        return f"{PREFIX}-{self._run}-"

    def name(self, vmid: int) -> str:
        """What Incus calls a container."""
        return f"{self.name_prefix}{vmid}"

    def root(self, vmid: int) -> Path:
        """Where its root file system lies on this machine."""
        return self.lab.state / "storage-pools/default/containers" / self.name(vmid) / "rootfs"

    def idmap(self, vmid: int) -> list[str]:
        """Which ids on the disk are those in the container, as lines of LXC's configuration."""
        owner = self.root(vmid).stat()
        return [f"u 0 {owner.st_uid} 65536", f"g 0 {owner.st_gid} 65536"]

    def create(self, vmid: int, template: Template, config: Mapping[str, str]) -> None:
        """A container of the image that is the template's."""
        image = IMAGES[template.ostype, template.systemd]
        self._make(vmid)
        body = {
            "name": self.name(vmid),
            "source": {"type": "image", "alias": image},
            "config": {**self._settings(config), MAKER: _process(os.getpid())},
            "devices": self._devices(config) | self._passed_on(config),
        }
        self._change("post", "instances", body=body)
        self._mounts[vmid] = {}
        self._mount(vmid, config)

    def copy(self, vmid: int, newid: int, snapshot: str) -> None:
        """A container with the same files; snapshots do not come along."""
        source = f"{self.name(vmid)}/{snapshot}" if snapshot else self.name(vmid)
        body = {"name": self.name(newid), "source": {"type": "copy", "source": source, "instance_only": True}}
        self._make(newid)
        self._change("post", "instances", body=body)
        mounted = self._kept[vmid, snapshot] if snapshot else self._mounts[vmid]
        self._mounts[newid] = dict.fromkeys(mounted, "")

    def remove(self, vmid: int) -> None:
        """Delete it, running or not."""
        self._started.pop(vmid, None)
        if vmid in self._made:
            _delete(self._client, self.name(vmid))
            self._made.discard(vmid)
            if self.configs is not None:
                (self.configs / f"{vmid}.conf").unlink()

    def configure(self, vmid: int, config: Mapping[str, str]) -> None:
        """Mount what is new, unmount what is not there any more, and plug in device files."""
        self._mount(vmid, config)
        found = self._seen(vmid)
        kept = {name: one for name, one in found["devices"].items() if one["type"] != "unix-char"}
        devices = {**kept, **self._passed_on(config)}
        if devices != found["devices"]:
            self._change("put", "instances", self.name(vmid), body={**found, "devices": devices})

    def start(self, vmid: int, config: Mapping[str, str]) -> None:
        """Start it with its nesting and its network card."""
        self._mount(vmid, config)
        body = {"config": self._settings(config), "devices": self._devices(config)}
        self._change("patch", "instances", self.name(vmid), body=body)
        self._state(vmid, "start")
        self._started[vmid] = time.monotonic()

    def stop(self, vmid: int) -> None:
        """Kill it."""
        self._started.pop(vmid, None)
        if self._seen(vmid)["status"] != "Stopped":
            self._state(vmid, "stop", force=True)

    def shutdown(self, vmid: int, timeout_s: int) -> bool:
        """Ask it to end, and wait."""
        try:
            self._client.change("put", "instances", self.name(vmid), "state", body=_action("stop", timeout=timeout_s))
        except WireError:
            return bool(self._seen(vmid)["status"] == "Stopped")
        self._started.pop(vmid, None)
        return True

    def running_s(self, vmid: int) -> float | None:
        """For how long it has been running; Incus is asked, because it may have ended by itself."""
        started = self._started.get(vmid)  # it may be stopped while Incus is asked
        if started is None:
            return None
        found = self._client.find("instances", self.name(vmid))
        if found is None or found["status"] not in ("Running", FROZEN):
            return None  # a frozen one runs, as far as PVE can see
        return time.monotonic() - started

    def init(self, vmid: int) -> int | None:
        """The process in it that all others come from; None when it does not run. Incus is asked once for each."""
        known = self._inits.get(vmid)
        if known is None or f"lxc.payload.{self.name(vmid)}/" not in _groups(known):
            known = int(self._client.get("instances", self.name(vmid), "state")["pid"]) or None
        if known is not None:
            self._inits[vmid] = known
        return known

    def snapshot(self, vmid: int, name: str) -> None:
        """Keep its files."""
        self._change("post", "instances", self.name(vmid), "snapshots", body={"name": name, "stateful": False})
        self._kept[vmid, name] = dict(self._mounts[vmid])

    def rollback(self, vmid: int, name: str) -> None:
        """Put back what was kept."""
        self._change("put", "instances", self.name(vmid), body={"restore": name})
        self._mounts[vmid] = dict(self._kept[vmid, name])

    def forget(self, vmid: int, name: str) -> None:
        """Keep it no longer."""
        self._change("delete", "instances", self.name(vmid), "snapshots", name)
        self._kept.pop((vmid, name), None)

    def interfaces(self, vmid: int, nets: Mapping[str, Mapping[str, str]]) -> list[Interface]:
        """Its cards, with the addresses that they have by now."""
        del nets
        network = self._client.get("instances", self.name(vmid), "state")["network"] or {}
        return [
            Interface(
                name, card["hwaddr"], tuple(f"{one['address']}/{one['netmask']}" for one in card["addresses"] or ())
            )
            for name, card in network.items()
        ]

    def close(self) -> None:
        """Remove all."""
        for vmid in list(self._made):
            self.remove(vmid)

    def _make(self, vmid: int) -> None:
        self._made.add(vmid)
        if self.configs is not None:
            (self.configs / f"{vmid}.conf").touch()

    def _settings(self, config: Mapping[str, str]) -> dict[str, str]:
        nesting = parts("features", config.get("features", "")).get("nesting") == "1"
        return {"security.nesting": str(nesting).lower()}

    def _devices(self, config: Mapping[str, str]) -> dict[str, dict[str, str]]:
        """``net0`` on the lab's bridge, whatever its own is called; a container without one has none."""
        if "net0" not in config:
            return {"eth0": {"type": "none"}}
        net = parts("net0", config["net0"])
        card = {"type": "nic", "network": self.lab.bridge, "name": net["name"], "hwaddr": net["hwaddr"].lower()}
        address = net.get("ip", "").partition("/")[0]
        if net.get("ip", "dhcp") not in ("dhcp", "manual") and self._is_ours(address):
            card["ipv4.address"] = address
        return {"eth0": card}

    def _passed_on(self, config: Mapping[str, str]) -> dict[str, dict[str, str]]:
        """The device files of the node: root's and of mode 0660 unless told otherwise, as PVE makes them."""
        given = (parts(name, one) for name, one in config.items() if DEVICE.fullmatch(name))
        return {
            one["path"].strip("/").replace("/", "-"): {
                "type": "unix-char",
                "path": one["path"],
                "major": str(self.files[one["path"]][0]),
                "minor": str(self.files[one["path"]][1]),
                "mode": one.get("mode", "0660"),
                "uid": one.get("uid", "0"),
                "gid": one.get("gid", "0"),
            }
            for one in given
        }

    def _is_ours(self, address: str) -> bool:
        return ipaddress.ip_address(address) in ipaddress.ip_interface(self.lab.subnet).network

    def _mount(self, vmid: int, config: Mapping[str, str]) -> None:
        wanted = {given["mp"]: given["volume"] for option, given in volumes(config) if option != "rootfs"}
        mounted, root = self._mounts[vmid], self.root(vmid)
        owner = root.stat()
        for path, volume in wanted.items():
            folder = root / path.lstrip("/")
            if mounted.get(path) not in ("", volume):
                shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                folder.mkdir(parents=True)
                os.chown(folder, owner.st_uid, owner.st_gid)
        for path in set(mounted) - set(wanted):
            shutil.rmtree(root / path.lstrip("/"), ignore_errors=True)
        self._mounts[vmid] = wanted

    def _seen(self, vmid: int) -> Any:
        return self._client.get("instances", self.name(vmid))

    def _state(self, vmid: int, action: str, *, force: bool = False) -> None:
        self._change("put", "instances", self.name(vmid), "state", body=_action(action, force=force))

    def _change(self, method: str, *path: str, body: Mapping[str, Any] | None = None) -> None:
        try:
            self._client.change(method, *path, body=body)
        except WireError as error:
            raise died(str(error)) from error

    def _sweep(self) -> None:
        """Remove what processes that are no more have left."""
        for one in self._client.get("instances", recursion="1"):
            maker = (one["config"] or {}).get(MAKER)
            if maker and maker != _process(int(maker.partition(" ")[0])):
                _delete(self._client, one["name"])


def _groups(process: int) -> str:
    """The control groups of a process; empty when it has ended."""
    try:
        return Path(f"/proc/{process}/cgroup").read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def _action(action: str, *, force: bool = False, timeout: int = -1) -> dict[str, Any]:
    return {"action": action, "force": force, "timeout": timeout}


def _delete(client: Client, name: str) -> None:
    found = client.find("instances", name)
    if found is None:
        return
    if found["status"] != "Stopped":
        client.change("put", "instances", name, "state", body=_action("stop", force=True))
    client.change("delete", "instances", name)


def _process(number: int) -> str:
    """A process by its number and the time of its start: numbers are used again. Only the number, if it ended."""
    try:
        started = Path(f"/proc/{number}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19]
    except FileNotFoundError:
        return str(number)
    return f"{number} {started}"
