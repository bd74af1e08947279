"""Changing a guest's options: refused at once, written, or kept pending until its next start."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping

from tests.doubles.proxmox import disks
from tests.doubles.proxmox.errors import ApiError, bad_parameters, died
from tests.doubles.proxmox.formats import split_list
from tests.doubles.proxmox.guest import VOLUME, Guest, form, parts, volume_kind
from tests.doubles.proxmox.schema import joined
from tests.doubles.proxmox.world import World

AT_ONCE = {"description", "onboot", "startup", "protection", "hostname", "hookscript", "cores", "tags", "lock"}
WHILE_RUNNING = {"cpulimit", "cpuunits", "memory", "swap"}
REQUIRED = ("memory", "rootfs", "ostype")
NET = re.compile(r"net\d+")
DEVICE = re.compile(r"dev\d+")
MOUNT = re.compile(r"mp\d+")


def normal(world: World, guest: Guest, option: str, value: str) -> str:
    """A value as it is kept; refuse what the node cannot do at all."""
    if VOLUME.fullmatch(option):
        guest.check_protection(f"can't update CT {guest.vmid} drive '{option}'")
        given = parts(option, value)
        if volume_kind(given["volume"]) == "volume":
            _check_container_storage(world, disks.storage_of(given["volume"]))
    elif option == "unprivileged":
        raise died(f"unable to modify read-only option: '{option}'")
    elif option == "tags":
        return ";".join(sorted({tag.lower() for tag in split_list(value)}))
    elif option in ("nameserver", "searchdomain"):
        return " ".join(split_list(value))
    elif NET.fullmatch(option):
        return _net(value)
    elif DEVICE.fullmatch(option):
        path = parts(option, value).get("path", "")
        if not path:
            raise died(f"Path is not defined for passthrough device {option}")
        world.check_device(guest.node, path)
    return value


def _check_container_storage(world: World, name: str) -> None:
    if name not in world.storages:
        raise died(f"storage '{name}' does not exist")
    if "rootdir" not in world.storages[name].content:
        raise died(f"storage '{name}' does not allow content type 'rootdir' (Container)")


def _net(value: str) -> str:
    given = parts("net0", value)
    given.setdefault("type", "veth")
    given["hwaddr"] = given.get("hwaddr", "BC:24:11:" + ":".join(f"{byte:02X}" for byte in secrets.token_bytes(3)))
    return joined(form("net0"), given)


def change(world: World, guest: Guest, new: Mapping[str, str], doomed: Iterable[str], *, running: bool) -> None:
    """Take up changes; refuse all when one is refused, as far as PVE refuses before it writes."""
    for option in doomed:
        _doom(guest, option)
    for option in sorted(new):
        guest.pending[option] = normal(world, guest, option, new[option])
        guest.doomed.discard(option)
        if guest.pending[option] == guest.config.get(option):
            guest.pending.pop(option)
    changed = {*new, *guest.doomed}
    errors: dict[str, str] = {}
    for option in sorted(guest.doomed):
        if not running or _goes_at_once(option):
            _delete(world, guest, option)
    for option in sorted(changed & set(guest.pending)):
        try:
            _set(world, guest, option, running=running)
        except ApiError as error:
            what = f"unable to hotplug {option}:" if running else f"unable to apply pending change {option} :"
            errors[option] = f"{what} {error.message}"
    if errors:
        raise bad_parameters(errors)


def _doom(guest: Guest, option: str) -> None:
    if option not in guest.config and option not in guest.pending:
        return  # PVE only warns in its own log
    if option in REQUIRED:
        raise died(f"unable to delete required option '{option}'")
    if option == "unprivileged":
        raise died(f"unable to delete read-only option: '{option}'")
    if re.fullmatch(r"(mp|unused)\d+", option):
        guest.check_protection(f"can't remove CT {guest.vmid} drive '{option}'")
    guest.pending.pop(option, None)
    if option in guest.config:
        guest.doomed.add(option)


def _goes_at_once(option: str) -> bool:
    """Whether a running container can lose or change an option."""
    return option in AT_ONCE | WHILE_RUNNING or bool(re.fullmatch(r"net\d+|unused\d+", option))


def _delete(world: World, guest: Guest, option: str) -> None:
    value = guest.config.pop(option, "")
    guest.doomed.discard(option)
    if MOUNT.fullmatch(option) and value and volume_kind(parts(option, value)["volume"]) == "volume":
        guest.add_unused(parts(option, value)["volume"])
    elif option.startswith("unused") and not guest.needs(value):
        disks.free(world, guest.node, [value])


def _set(world: World, guest: Guest, option: str, *, running: bool) -> None:
    value = guest.pending[option]
    is_new = option not in guest.config
    plugged = bool(re.fullmatch(r"(mp|dev)\d+", option)) and is_new
    if running and not (_goes_at_once(option) or plugged):
        return  # stays pending
    if running and NET.fullmatch(option):
        world.check_bridge(guest.node, parts(option, value).get("bridge", ""))
    if MOUNT.fullmatch(option):
        value = disks.make(world, guest.node, guest.vmid, {option: value})[option]
    guest.config[option] = value
    guest.pending.pop(option)


def apply_pending(world: World, guest: Guest) -> None:
    """What a start does first: take up all that is pending."""
    for option in sorted(guest.doomed):
        _delete(world, guest, option)
    for option in sorted(guest.pending):
        _set(world, guest, option, running=False)


def check_bridges(world: World, guest: Guest) -> None:
    """Refuse interfaces on bridges that the node has not; PVE does so after it has written the change."""
    for option, value in guest.config.items():
        bridge = parts(option, value).get("bridge") if NET.fullmatch(option) else None
        if bridge:
            world.check_bridge(guest.node, bridge)


def check_devices(world: World, guest: Guest) -> None:
    """Refuse devices that the node has no longer."""
    for option, value in guest.config.items():
        if DEVICE.fullmatch(option):
            world.check_device(guest.node, parts(option, value)["path"])
