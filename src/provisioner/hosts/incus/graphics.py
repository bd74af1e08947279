"""Cards and device files in Incus' words and back: devices, keys of the container, numbers of its groups. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from provisioner.values.state import Device

GROUPS = "user.provisioner.groups"
"""The key that names the container's groups to which our device files belong, with their numbers: "render=104"."""
RUNTIME, CAPABILITIES = "nvidia.runtime", "nvidia.driver.capabilities"
_REQUIREMENTS = {"require_driver": "nvidia.require.driver", "require_cuda": "nvidia.require.cuda"}
_OF_GPU = {"type": "gpu", "gputype": "physical"}
_OF_FILE = {"type": "unix-char"}
KEYS = (GROUPS, RUNTIME, CAPABILITIES, *_REQUIREMENTS.values())
NAMES: Mapping[str, str] = {"gpu": "gpu", "gpu-kfd": "unix-char"}
"""Our devices, with Incus' types of them; one of another name is its user's own."""
DEFAULT_MODE = "0660"

Groups = Mapping[str, int]
NO_GROUPS: Groups = MappingProxyType({})


def is_ours(name: str, found: Mapping[str, str]) -> bool:
    """Whether the device is one that we make."""
    return NAMES.get(name) == found["type"]


def needed_groups(devices: Iterable[Device]) -> frozenset[str]:
    """The groups of the container whose numbers have to be known."""
    groups = {device.properties.get("group") for device in devices}
    return frozenset(group for group in groups if group is not None)


def incus_device(device: Device, groups: Groups) -> dict[str, str]:
    """The device as Incus keeps it."""
    properties = device.properties
    found = dict(_OF_GPU if device.kind == "gpu" else _OF_FILE)
    for name in ("pci", "path", "mode"):
        if name in properties:
            found[name] = properties[name]
    if "group" in properties:
        found["gid"] = str(groups[properties["group"]])
    return found


def neutral_device(name: str, found: Mapping[str, str], config: Mapping[str, str]) -> Device:
    """Our device as it was asked for; a group by its name where it still has the number that it had."""
    properties = {key: found[key] for key in ("pci", "path") if key in found}
    properties["mode"] = found.get("mode", DEFAULT_MODE)
    if "gid" in found:
        properties["group"] = _group_of(found["gid"], config)
    if found["type"] != "gpu":
        return Device(name, "node", properties)
    if config.get(RUNTIME) == "true":
        properties["runtime"] = config.get(CAPABILITIES, "")
        for option, key in _REQUIREMENTS.items():
            if key in config:
                properties[option] = config[key]
    return Device(name, "gpu", properties)


def _group_of(number: str, config: Mapping[str, str]) -> str:
    """The group that has this number in the container; the number itself where none was noted."""
    names = {noted: group for group, noted in groups_in(config).items()}
    return names.get(int(number), number)


def keys(devices: Iterable[Device], groups: Groups) -> dict[str, str]:
    """The container's keys that our devices need beside themselves."""
    config: dict[str, str] = {}
    for device in devices:
        if "runtime" not in device.properties:
            continue
        config |= {RUNTIME: "true", CAPABILITIES: device.properties["runtime"]}
        for name, key in _REQUIREMENTS.items():
            if name in device.properties:
                config[key] = device.properties[name]
    needed = sorted(needed_groups(devices))
    if needed:
        config[GROUPS] = ",".join(f"{name}={groups[name]}" for name in needed)
    return config


def groups_in(config: Mapping[str, str]) -> dict[str, int]:
    """The numbers of groups that were noted."""
    numbers: dict[str, int] = {}
    for pair in config.get(GROUPS, "").split(","):
        name, _, number = pair.partition("=")
        if number.isdigit():
            numbers[name] = int(number)
    return numbers
