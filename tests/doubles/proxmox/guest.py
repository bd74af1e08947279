"""The configuration of a guest: options, what is pending, snapshots, and the digest of it all."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.doubles.proxmox import schema
from tests.doubles.proxmox.errors import died
from tests.doubles.proxmox.guests import Template

VOLUME = re.compile(r"rootfs|mp\d+")
NEW_DISK = re.compile(r"([^:\s]+):(\d+(?:\.\d+)?)")
NOT_IN_SNAPSHOTS = re.compile(r"lock|description|unused\d+")

Config = dict[str, str]


def form(option: str) -> Mapping[str, Any]:
    """The parts of an option that is a property string."""
    found = schema.methods()["PUT /nodes/{node}/lxc/{vmid}/config"].option(option)
    parts: Mapping[str, Any] = found["format"] if found else {}
    return parts


def parts(option: str, value: str) -> Config:
    """The parts of an option's value."""
    return schema.parts(form(option), value)


def volume_kind(volume: str) -> str:
    """``volume`` on a storage, ``bind`` of a host's path, or a host's ``device``."""
    if volume.startswith("/dev/"):
        return "device"
    return "bind" if volume.startswith("/") else "volume"


def volumes(config: Mapping[str, str]) -> Iterator[tuple[str, Config]]:
    """The root file system and the mount points, each with its parts and its ``kind``."""
    for option in sorted(config, key=lambda name: (name != "rootfs", name)):
        if VOLUME.fullmatch(option):
            found = parts(option, config[option])
            yield option, {**found, "kind": volume_kind(found["volume"])}


def typed(config: Mapping[str, str]) -> dict[str, object]:
    """A configuration as it is shown: numbers and booleans as numbers, the description with a line feed."""
    known = schema.methods()["PUT /nodes/{node}/lxc/{vmid}/config"]
    shown: dict[str, object] = {}
    for name, value in config.items():
        kind = (known.option(name) or {}).get("type")
        shown[name] = int(value) if kind in ("integer", "boolean") or name == "snaptime" else value
    if "description" in config:
        shown["description"] = config["description"].rstrip("\n") + "\n"
    return shown


@dataclass
class Guest:
    """One container's configuration file."""

    vmid: int
    node: str
    config: Config = field(default_factory=dict)
    pending: Config = field(default_factory=dict)
    doomed: set[str] = field(default_factory=set)
    snapshots: dict[str, Config] = field(default_factory=dict)
    template: Template = field(default_factory=Template)

    @property
    def digest(self) -> str:
        """The SHA-1 of everything in it."""
        text = repr((sorted(self.config.items()), sorted(self.pending.items()), sorted(self.doomed)))
        return hashlib.sha1(f"{text}{sorted(self.snapshots)}".encode(), usedforsecurity=False).hexdigest()

    @property
    def file(self) -> str:
        """Where it lies in the cluster's file system."""
        return f"nodes/{self.node}/lxc/{self.vmid}.conf"

    def check_lock(self) -> None:
        """Refuse when something else is at work on it, or died at it."""
        if self.config.get("lock"):
            raise died(f"CT is locked ({self.config['lock']})")

    def check_protection(self, what: str) -> None:
        """Refuse what its protection forbids."""
        if self.config.get("protection") == "1":
            raise died(f"{what} - protection mode enabled")

    def check_digest(self, digest: str) -> None:
        """Refuse when somebody else has written since the caller read."""
        if digest and digest != self.digest:
            raise died("detected modified configuration - file changed by other user? Try again.")

    def shown(self, *, current: bool) -> dict[str, object]:
        """The configuration as ``GET config`` gives it: pending changes included, unless asked for the current one."""
        config = dict(self.config)
        if not current:
            config.update(self.pending)
            for name in self.doomed:
                config.pop(name, None)
        return {**typed(config), "digest": self.digest}

    def remember(self, name: str, description: str) -> None:
        """Note a snapshot of the configuration; it follows the one before."""
        kept = {key: value for key, value in self.config.items() if not NOT_IN_SNAPSHOTS.fullmatch(key)}
        kept["snaptime"] = str(int(time.time()))
        if description:
            kept["description"] = description
        self.snapshots[name] = kept
        self.config["parent"] = name

    def go_back(self, name: str) -> None:
        """The configuration of a snapshot; description and unused volumes stay, but for those that are used again."""
        kept = {key: value for key, value in self.config.items() if re.fullmatch(r"description|unused\d+", key)}
        old = {k: v for k, v in self.snapshots[name].items() if k not in ("snaptime", "description", "snapstate")}
        used = {given["volume"] for _, given in volumes(old)}
        self.config = {**{key: value for key, value in kept.items() if value not in used}, **old, "parent": name}
        self.pending.clear()
        self.doomed.clear()

    def forget(self, name: str) -> None:
        """Remove a snapshot; those after it now follow the one before it."""
        parent = self.snapshots.pop(name).get("parent", "")
        for config in (self.config, *self.snapshots.values()):
            if config.get("parent") == name:
                config.pop("parent")
                if parent:
                    config["parent"] = parent

    def needs(self, volid: str) -> bool:
        """Whether a volume is mounted, now or after the next start, or was in a state that a snapshot remembers."""
        configs = (self.config, self.pending, *self.snapshots.values())
        return any(given["volume"] == volid for config in configs for _, given in volumes(config))

    def add_unused(self, volid: str) -> None:
        """Keep a volume that nothing mounts any more; PVE lists it also while a snapshot needs it."""
        taken = {name: value for name, value in self.config.items() if name.startswith("unused")}
        if volid not in taken.values():
            number = next(number for number in range(256) if f"unused{number}" not in taken)
            self.config[f"unused{number}"] = volid
