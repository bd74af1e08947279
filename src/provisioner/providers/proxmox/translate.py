"""Our values in Proxmox' words and back: what ``options_for`` writes is read back equal by ``instance_of``. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from provisioner.providers.proxmox import marks, mounts, network
from provisioner.providers.proxmox.guest import Guest
from provisioner.providers.proxmox.marks import Mark
from provisioner.providers.proxmox.properties import MIB, bytes_of, joined, mebibytes, number_in, parts
from provisioner.state import Instance, InstanceKind

DEFAULT_MEMORY = 512 * MIB
"""Proxmox' own."""
DEFAULT_DISK = 8 * 2**30
DEVICES = 256
DEFAULT_MODE = "0660"

Options = dict[str, str | None]
"""What a container's options are to be; None: there shall be none."""


def mark_for(wanted: Instance, guest: Guest, layout: mounts.Layout) -> Mark:
    """What the block of a container says once it is what is wanted; whose and what it is stays as it was."""
    before = guest.mark or Mark(wanted.lab, guest.vmid, wanted.image, wanted.kind)
    settings = wanted.settings
    kept = {name: one for name, one in before.asked.items() if not name.startswith(marks.GROUP)}
    asked = {**kept, **_groups(settings, before.asked), "memory": wanted.memory, "disk": wanted.disk}
    return replace(
        before,
        nesting=wanted.nesting,
        volumes=tuple(layout.mounts),
        asked=asked | ({"swap": settings["swap"]} if "swap" in settings else {}),
        extra=tuple(settings["mounts"]) if "mounts" in settings else before.extra,
        mac="mac" in settings["network"] if "network" in settings else before.mac,
        discard=tuple(layout.discard),
    )


def options_for(wanted: Instance, guest: Guest, layout: mounts.Layout) -> Options:
    """The options of a container that is as wanted, but for those that stay as they are.

    ``guest`` is the container as it is, without options when it is only to be made.
    """
    mark = mark_for(wanted, guest, layout)
    text = wanted.settings.get("description", guest.text)
    options: Options = {"cores": None if wanted.cpu is None else str(wanted.cpu)}
    options["memory"] = str(mebibytes(wanted.memory or DEFAULT_MEMORY))
    options |= _settings(wanted.settings, guest)
    tags = wanted.settings.get("tags", marks.without_tags(guest.config.get("tags", ""), mark.lab))
    options["tags"] = marks.with_tags(tags, mark.lab)
    options |= layout.options
    found = {name: value for name, value in options.items() if not _is_same(name, value, guest.config.get(name))}
    if (text, mark) != (guest.text, guest.mark):
        found["description"] = marks.written(text, mark)
    return found


def instance_of(guest: Guest, host: str) -> Instance:
    """The container as Proxmox says it is; of one without a mark what a mark would say is empty."""
    mark = guest.mark
    config = guest.config
    disk = bytes_of(parts(config.get("rootfs", ""), "volume").get("size", "")) or None
    asked = mark.asked if mark else {}
    return Instance(
        name=guest.name,
        host=host,
        lab=guest.lab,
        image=mark.image if mark else "",
        cpu=int(config["cores"]) if "cores" in config else None,
        memory=_asked(asked, "memory", int(config.get("memory", "512")) * MIB, DEFAULT_MEMORY),
        disk=None if asked.get("disk", 0) is None else _asked(asked, "disk", disk),
        nesting=mark.nesting if mark else False,
        devices=mounts.devices_of(guest),
        kind=mark.kind if mark else InstanceKind.SERVING,
        status=guest.status,
        address=guest.address,
        snapshots=guest.snapshots,
        settings=settings_of(guest),
    )


def settings_of(guest: Guest) -> dict[str, Any]:
    """The settings of a container by the file's words, its VMID and the storage of its root file system, too."""
    config = guest.config
    mark = guest.mark
    asked = mark.asked if mark else {}
    return {
        "vmid": guest.vmid,
        "storage": guest.storage,
        "swap": _asked(asked, "swap", int(config.get("swap", "0")) * MIB),
        "network": network.mapping_of(config.get("net0", ""), mac=mark.mac if mark else False),
        "features": tuple(sorted(_features(config.get("features", "")))),
        "devices": tuple(
            {**one, "gid": _group(one["gid"], asked)}
            for one in sorted(map(_device, _devices(config).values()), key=lambda one: str(one["path"]))
        ),
        "mounts": mounts.extra_of(guest),
        "unprivileged": config.get("unprivileged") == "1",
        "onboot": config.get("onboot") == "1",
        "order": int(parts(config.get("startup", ""), "order").get("order", "0")),
        "pool": guest.pool,
        "tags": marks.without_tags(config.get("tags", ""), guest.lab),
        "description": guest.text,
        "protection": config.get("protection") == "1",
    }


def _settings(settings: Mapping[str, Any], guest: Guest) -> Options:
    found: Options = {}
    if "swap" in settings:
        found["swap"] = str(mebibytes(settings["swap"]))
    for name in ("onboot", "protection"):
        if name in settings:
            found[name] = "1" if settings[name] else None
    if "order" in settings:
        found["startup"] = _startup(settings["order"], guest.config.get("startup", ""))
    if "features" in settings:
        words = (one if "=" in one else f"{one}=1" for one in settings["features"])
        found["features"] = ",".join(words) or None
    if settings.get("network"):
        found["net0"] = network.option_for(settings["network"], guest.config.get("net0", ""))
    if "devices" in settings:
        found |= _device_options(settings["devices"], guest.config)
    return found


def _startup(order: int, current: str) -> str | None:
    """The place in the order of starts; delays that somebody has set stay."""
    given = {key: value for key, value in parts(current, "order").items() if key != "order"}
    return joined({**({"order": str(order)} if order else {}), **given}) or None


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
        return {name: one for name, one in before.items() if name.startswith(marks.GROUP)}
    return {f"{marks.GROUP}{one['group']}": one["gid"] for one in settings["devices"] if "group" in one}


def _group(number: int, asked: Mapping[str, int | None]) -> str | int:
    """The group that had this number when it was written; the number itself, of another one."""
    names = (name.removeprefix(marks.GROUP) for name, one in asked.items() if name.startswith(marks.GROUP))
    return next((name for name in names if asked[marks.GROUP + name] == number), number)


def _device_options(wanted: tuple[Mapping[str, Any], ...], config: Mapping[str, str]) -> Options:
    """The device files: those that are there keep their numbers."""
    there = _devices(config)
    numbers = {_device(text)["path"]: name for name, text in there.items()}
    free = (name for name in (f"dev{number}" for number in range(DEVICES)) if name not in there)
    found: Options = dict.fromkeys(there)
    for one in wanted:
        name = numbers.get(one["path"]) or next(free)
        kept = {key: value for key, value in parts(there.get(name, ""), "path").items() if key == "deny-write"}
        given = {
            key: str(one[key]) for key, usual in (("uid", 0), ("gid", 0), ("mode", DEFAULT_MODE)) if one[key] != usual
        }
        found[name] = joined({"path": one["path"], **given, **kept}, "path")
    return found


def _asked(asked: Mapping[str, int | None], name: str, size: int | None, default: int | None = None) -> int | None:
    """What was asked for, where that is what there is: rounded as Proxmox rounds it, or its default."""
    if name not in asked or size is None:
        return size
    wish = asked[name]
    if wish is None:
        return None if size == default else size
    return wish if mebibytes(wish) * MIB == size else size


def _is_same(name: str, wanted: str | None, current: str | None) -> bool:
    if wanted is None or current is None:
        return wanted == current or (wanted is None and current in ("0", ""))
    if name == "net0":
        return network.is_same(wanted, current)
    if name == "tags":
        return set(marks.tags_in(wanted)) == set(marks.tags_in(current))
    if name == "features":
        return set(_features(wanted)) == set(_features(current))
    if name.startswith("dev"):
        return _device(wanted) == _device(current)
    return wanted == current
