"""Translate our values into Proxmox' and back: what ``options_for`` writes, ``instance_of`` reads back equal. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from provisioner.providers.proxmox import marks, mounts, network
from provisioner.providers.proxmox.guest import Guest
from provisioner.providers.proxmox.marks import Mark
from provisioner.providers.proxmox.properties import MIB, bytes_of, joined, mebibytes, number_in, parts
from provisioner.values.state import Instance

DEFAULT_MEMORY = 512 * MIB
"""Proxmox' own."""
DEFAULT_DISK = 8 * 2**30
DEVICES = 256
DEFAULT_MODE = "0660"
_DEVICE_DEFAULTS: Mapping[str, Any] = {"uid": 0, "gid": 0, "mode": DEFAULT_MODE}

Options = dict[str, str | None]
"""What a container's options are to be; None: there shall be none."""


def mark_for(wanted: Instance, guest: Guest, layout: mounts.Layout) -> Mark:
    """What the block of a container says once it is what is wanted; whose and what it is stays as it was."""
    before = guest.mark or Mark(wanted.lab, guest.vmid, wanted.image, wanted.kind)
    settings = wanted.settings
    asked = {name: size for name, size in before.asked.items() if not name.startswith(marks.GROUP)}
    asked |= _groups(settings, before.asked)
    asked |= {"memory": wanted.memory, "disk": wanted.disk}
    if "swap" in settings:
        asked["swap"] = settings["swap"]
    return replace(
        before,
        nesting=wanted.nesting,
        volumes=tuple(layout.mounts),
        asked=asked,
        extra=tuple(settings.get("mounts", before.extra)),
        mac="mac" in settings["network"] if "network" in settings else before.mac,
        discard=tuple(layout.discard),
    )


def options_for(wanted: Instance, guest: Guest, layout: mounts.Layout) -> Options:
    """The options of a container that is as wanted, but for those that stay as they are.

    ``guest`` is the container as it is, without options when it is only to be made.
    """
    mark = mark_for(wanted, guest, layout)
    tags = wanted.settings.get("tags", marks.without_tags(guest.config.get("tags", ""), mark.lab))
    options: Options = {
        "cores": None if wanted.cpu is None else str(wanted.cpu),
        "memory": str(mebibytes(wanted.memory or DEFAULT_MEMORY)),
        **_settings(wanted.settings, guest),
        "tags": marks.with_tags(tags, mark.lab),
        **layout.options,
    }
    changed: Options = {}
    for name, value in options.items():
        if not _is_same(name, value, guest.config.get(name)):
            changed[name] = value
    text = wanted.settings.get("description", guest.text)
    if (text, mark) != (guest.text, guest.mark):
        changed["description"] = marks.written(text, mark)
    return changed


def instance_of(guest: Guest, host: str) -> Instance:
    """The container as Proxmox says it is; of one without a mark what a mark would say is empty."""
    mark = guest.mark or Mark("", guest.vmid, "")
    config = guest.config
    memory = int(config.get("memory", "512")) * MIB
    return Instance(
        name=guest.name,
        host=host,
        lab=guest.lab,
        image=mark.image,
        cpu=int(config["cores"]) if "cores" in config else None,
        memory=_asked(mark.asked, "memory", memory, DEFAULT_MEMORY),
        disk=_disk_size(config, mark),
        nesting=mark.nesting,
        devices=mounts.devices_of(guest),
        kind=mark.kind,
        status=guest.status,
        address=guest.address,
        snapshots=guest.snapshots,
        settings=settings_of(guest),
        artifact_disks=mounts.copy_sizes(guest),
    )


def _disk_size(config: Mapping[str, str], mark: Mark) -> int | None:
    """The size of the root file system's disk; None where the file leaves it out, or it has none."""
    is_left_out = "disk" in mark.asked and mark.asked["disk"] is None
    if is_left_out:
        return None
    size = bytes_of(parts(config.get("rootfs", ""), "volume").get("size", ""))
    return _asked(mark.asked, "disk", size or None)


def settings_of(guest: Guest) -> dict[str, Any]:
    """The settings of a container by their names in the file, its VMID and the storage of its root file system, too."""
    config = guest.config
    asked = guest.mark.asked if guest.mark else {}
    decides_mac = guest.mark.mac if guest.mark else False
    return {
        "vmid": guest.vmid,
        "storage": guest.storage,
        "swap": _asked(asked, "swap", int(config.get("swap", "0")) * MIB),
        "network": network.mapping_of(config.get("net0", ""), mac=decides_mac),
        "features": tuple(sorted(_features(config.get("features", "")))),
        "devices": _device_files(config, asked),
        "mounts": mounts.extra_of(guest),
        "unprivileged": config.get("unprivileged") == "1",
        "onboot": config.get("onboot") == "1",
        "order": int(parts(config.get("startup", ""), "order").get("order", "0")),
        "pool": guest.pool,
        "tags": marks.without_tags(config.get("tags", ""), guest.lab),
        "description": guest.text,
        "protection": config.get("protection") == "1",
    }


def _device_files(config: Mapping[str, str], asked: Mapping[str, int | None]) -> tuple[dict[str, Any], ...]:
    """The device files of a container, by path; a group that was asked for by its name."""
    devices = []
    for text in _devices(config).values():
        device = _device(text)
        device["gid"] = _group(device["gid"], asked)
        devices.append(device)
    devices.sort(key=lambda device: str(device["path"]))
    return tuple(devices)


def _settings(settings: Mapping[str, Any], guest: Guest) -> Options:
    options: Options = {}
    if "swap" in settings:
        options["swap"] = str(mebibytes(settings["swap"]))
    for name in ("onboot", "protection"):
        if name in settings:
            options[name] = "1" if settings[name] else None
    if "order" in settings:
        options["startup"] = _startup(settings["order"], guest.config.get("startup", ""))
    if "features" in settings:
        options["features"] = _features_option(settings["features"])
    if settings.get("network"):
        options["net0"] = network.option_for(settings["network"], guest.config.get("net0", ""))
    if "devices" in settings:
        options |= _device_options(settings["devices"], guest.config)
    return options


def _features_option(features: Iterable[str]) -> str | None:
    pairs = [feature if "=" in feature else f"{feature}=1" for feature in features]
    return ",".join(pairs) or None


def _startup(order: int, current: str) -> str | None:
    """The place in the order of starts; delays that somebody has set stay."""
    values = parts(current, "order")
    values.pop("order", None)
    if order:
        values = {"order": str(order), **values}
    return joined(values) or None


def _features(text: str) -> Iterator[str]:
    for name, value in parts(text).items():
        if value == "1":
            yield name
        elif value not in ("0", ""):
            yield f"{name}={value}"


def _devices(config: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in config.items() if name.startswith("dev") and name[3:].isdecimal()}


def _device(text: str) -> dict[str, Any]:
    given = parts(text, "path")
    mode = given.get("mode", DEFAULT_MODE)
    owner = {name: number_in(given.get(name, "")) for name in ("uid", "gid")}
    return {"path": given.get("path", ""), "mode": mode, **owner}


def _groups(settings: Mapping[str, Any], before: Mapping[str, int | None]) -> dict[str, int | None]:
    """What the mark says of groups: the numbers that are written now; where no device file is decided, as it was."""
    if "devices" not in settings:
        return {name: number for name, number in before.items() if name.startswith(marks.GROUP)}
    groups: dict[str, int | None] = {}
    for device in settings["devices"]:
        if "group" in device:
            groups[f"{marks.GROUP}{device['group']}"] = device["gid"]
    return groups


def _group(number: int, asked: Mapping[str, int | None]) -> str | int:
    """The group that had this number when it was written; the number itself, of another one."""
    for name, number_then in asked.items():
        if name.startswith(marks.GROUP) and number_then == number:
            return name.removeprefix(marks.GROUP)
    return number


def _device_options(wanted: tuple[Mapping[str, Any], ...], config: Mapping[str, str]) -> Options:
    """The device files: those that are there keep their numbers."""
    current = _devices(config)
    names = {_device(text)["path"]: name for name, text in current.items()}
    free = (f"dev{number}" for number in range(DEVICES) if f"dev{number}" not in current)
    options: Options = dict.fromkeys(current)
    for device in wanted:
        name = names.get(device["path"]) or next(free)
        options[name] = _device_option(device, current.get(name, ""))
    return options


def _device_option(device: Mapping[str, Any], current: str) -> str:
    """The option of a device file: what differs from Proxmox' defaults, and whether writing is denied, as it was."""
    values = {"path": str(device["path"])}
    for name, default in _DEVICE_DEFAULTS.items():
        if device[name] != default:
            values[name] = str(device[name])
    before = parts(current, "path")
    if "deny-write" in before:
        values["deny-write"] = before["deny-write"]
    return joined(values, "path")


def _asked(asked: Mapping[str, int | None], name: str, size: int | None, default: int | None = None) -> int | None:
    """What was asked for, where that is what there is: rounded as Proxmox rounds it, or its default."""
    if name not in asked or size is None:
        return size
    wish = asked[name]
    if wish is None:
        return None if size == default else size
    return wish if mebibytes(wish) * MIB == size else size


def _is_same(name: str, wanted: str | None, current: str | None) -> bool:
    if wanted is None:
        return current in (None, "0", "")
    if current is None:
        return False
    if name == "net0":
        return network.is_same(wanted, current)
    return _meaning(name, wanted) == _meaning(name, current)


def _meaning(name: str, text: str) -> object:
    """The value of an option in a form in which two texts that mean the same are equal."""
    if name == "tags":
        return set(marks.tags_in(text))
    if name == "features":
        return set(_features(text))
    if name.startswith("dev"):
        return _device(text)
    return text
