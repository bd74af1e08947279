"""Our values in Incus' words and back: what is written by ``request_for`` is read back equal by ``instance_of``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from provisioner.providers.incus import graphics
from provisioner.state import Device, Instance, InstanceKind, Snapshot, Status

LAB, KIND, IMAGE = "user.provisioner.lab", "user.provisioner.kind", "user.provisioner.image"
ARTIFACT, READY = "user.provisioner.artifact", "user.provisioner.ready"

_STATUS = {"Running": Status.RUNNING, "Stopped": Status.STOPPED, "Frozen": Status.FROZEN}
_DECIMAL = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15, "EB": 10**18}
_BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50, "EiB": 2**60}
_UNITS = _DECIMAL | _BINARY


def request_for(
    instance: Instance, root: Mapping[str, str], pool: str, groups: graphics.Groups = graphics.NO_GROUPS
) -> dict[str, Any]:
    """The body that creates ``instance``; ``root`` is the profile's root disk, ``pool`` holds the artifact volumes.

    ``groups`` are the container's, by name; a device of another group is left out: the container has to be there first.
    """
    config = {
        LAB: instance.lab,
        KIND: str(instance.kind),
        IMAGE: instance.image,
        "security.privileged": "false",
    }
    config |= {key: value for key, value in _limits(instance).items() if value is not None}
    possible = [one for one in instance.devices if one.properties.get("group") in {None, *groups}]
    config |= graphics.keys(possible, groups)
    devices = {device.name: _incus_device(device, pool, groups) for device in possible}
    if instance.disk is not None:
        # A local device replaces the profile's whole, so that its pool and path are repeated.
        devices["root"] = {**root, "size": str(instance.disk)}
    source = {"type": "image", "alias": instance.image}
    return {"name": instance.name, "type": "container", "source": source, "config": config, "devices": devices}


def updated(
    body: Mapping[str, Any],
    instance: Instance,
    root: Mapping[str, str],
    pool: str,
    groups: graphics.Groups = graphics.NO_GROUPS,
) -> dict[str, Any]:
    """The body of an existing container with what ``instance`` says; whatever has no word in ``Instance`` is kept."""
    before, there = body["config"], body["devices"]
    has_card = any(graphics.is_ours(name, one) for name, one in there.items())
    ours = {*_limits(instance), *(graphics.KEYS if has_card else ())}
    wanted = {**_limits(instance), **graphics.keys(instance.devices, groups)}
    config = {key: value for key, value in before.items() if key not in ours}
    config |= {key: value for key, value in wanted.items() if value}
    kept = {name: one for name, one in there.items() if not is_root(one) and not _neutral_device(name, one, before)}
    devices = _roots(there, instance.disk, root) | kept
    for device in instance.devices:
        new = _incus_device(device, pool, groups)
        old = there.get(device.name)
        same = old is not None and _neutral_device(device.name, old, config) == _neutral_device(
            device.name, new, config
        )
        devices[device.name] = old if same else new
    return {**body, "config": config, "devices": devices}


def without_publications(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a container without the ports of the host that it listens on."""
    return {**body, "devices": {name: one for name, one in body["devices"].items() if one["type"] != "proxy"}}


def instance_of(found: Mapping[str, Any], host: str) -> Instance:
    """The container as Incus says it is; only what is set on it, not what its profile sets."""
    config, devices = found["config"], found["devices"]
    root = next((one for one in devices.values() if is_root(one)), None) or {}
    neutral = (_neutral_device(name, one, config) for name, one in sorted(devices.items()))
    return Instance(
        name=found["name"],
        host=host,
        lab=config.get(LAB, ""),
        image=config.get(IMAGE, ""),
        cpu=_count(config.get("limits.cpu")),
        memory=bytes_of(config.get("limits.memory")),
        disk=bytes_of(root.get("size")),
        nesting=config.get("security.nesting") == "true",
        devices=tuple(one for one in neutral if one is not None),
        kind=InstanceKind(config.get(KIND, InstanceKind.SERVING)),
        status=_STATUS.get(found["status"], Status.ERROR),
        address=address_in(found.get("state") or {}),
        snapshots=tuple(sorted(map(snapshot_of, found.get("snapshots") or ()), key=_age)),
    )


def snapshot_of(found: Mapping[str, Any]) -> Snapshot:
    """The snapshot as Incus says it is."""
    disks = (one for one in found["devices"].values() if one["type"] == "disk" and "pool" in one and not is_root(one))
    volumes = tuple(sorted(one["source"] for one in disks))
    return Snapshot(found["name"].rpartition("/")[2], found["created_at"], volumes)


def is_root(device: Mapping[str, str]) -> bool:
    """Whether the device is the container's own disk."""
    return device["type"] == "disk" and device.get("path") == "/"


def address_in(state: Mapping[str, Any]) -> str | None:
    """The container's IPv4 address on ``eth0``, or None."""
    card = (state.get("network") or {}).get("eth0") or {}
    found = (one for one in card.get("addresses", ()) if one["family"] == "inet" and one["scope"] == "global")
    return next((str(one["address"]) for one in found), None)


def bytes_of(text: str | None) -> int | None:
    """A size of Incus in bytes; 0, which no file can ask for, when it is a share of the host ("50%")."""
    if not text:
        return None
    match = re.fullmatch(r"(\d+)\s*(\w*)", text)
    return int(match[1]) * _UNITS[match[2]] if match and match[2] in _UNITS else 0


def _age(snapshot: Snapshot) -> datetime:
    return datetime.fromisoformat(snapshot.created)


def _limits(instance: Instance) -> dict[str, str | None]:
    """The keys that say how much a container may have; None: as its profile says."""
    return {
        "limits.cpu": None if instance.cpu is None else str(instance.cpu),
        "limits.memory": None if instance.memory is None else str(instance.memory),
        "security.nesting": str(instance.nesting).lower(),
    }


def _roots(
    devices: Mapping[str, Mapping[str, str]], disk: int | None, root: Mapping[str, str]
) -> dict[str, Mapping[str, str]]:
    """The container's own root disk, by its name: of the wanted size; none where nothing but a size was its own."""
    name, own = next(((name, one) for name, one in devices.items() if is_root(one)), ("root", root))
    if disk is not None:
        same = name in devices and bytes_of(own.get("size")) == disk
        return {name: own if same else {**own, "size": str(disk)}}
    rest = {key: value for key, value in own.items() if key != "size"}
    is_plain = rest == {key: value for key, value in root.items() if key != "size"}
    return {} if is_plain else {name: rest}


def _count(text: str | None) -> int | None:
    """The number of CPUs in ``limits.cpu``, which may also be a list of CPUs to be bound to ("0-3,8")."""
    if not text:
        return None
    if text.isdigit():
        return int(text)
    ends = [part.partition("-") for part in text.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ends)


def _incus_device(device: Device, pool: str, groups: graphics.Groups) -> dict[str, str]:
    properties = device.properties
    if device.kind in ("gpu", "node"):
        return graphics.incus_device(device, groups)
    if device.kind == "volume":
        disk = {"type": "disk", "pool": pool, "source": properties["volume"], "path": properties["path"]}
        return disk | ({"readonly": "true"} if properties.get("readonly") == "true" else {})
    listen, connect = f"tcp:{properties['listen']}", f"tcp:{properties['connect']}"
    return {"type": "proxy", "listen": listen, "connect": connect, "bind": "host"}


def _neutral_device(name: str, found: Mapping[str, str], config: Mapping[str, str]) -> Device | None:
    if graphics.is_ours(name, found):
        return graphics.neutral_device(name, found, config)
    if found["type"] == "proxy":
        ends = {end: found[end].removeprefix("tcp:") for end in ("listen", "connect")}
        return Device(name, "publish", ends)
    if found["type"] == "disk" and "pool" in found and found.get("path") != "/":
        readonly = found.get("readonly", "false")
        return Device(name, "volume", {"volume": found["source"], "path": found["path"], "readonly": readonly})
    return None
