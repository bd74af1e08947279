"""Cards and device files in Incus' words and back: devices, keys of the container, numbers of its groups. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from provisioner.state import Device

GROUPS = "user.provisioner.groups"
"""Which groups of the container our device files belong to, with the numbers that they had: "render=104"."""
RUNTIME, CAPABILITIES = "nvidia.runtime", "nvidia.driver.capabilities"
_REQUIREMENTS = {"require_driver": "nvidia.require.driver", "require_cuda": "nvidia.require.cuda"}
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
    return frozenset(one.properties["group"] for one in devices if "group" in one.properties)


def incus_device(device: Device, groups: Groups) -> dict[str, str]:
    """The device as Incus keeps it."""
    given = device.properties
    kind = {"type": "gpu", "gputype": "physical"} if device.kind == "gpu" else {"type": "unix-char"}
    found = kind | {name: given[name] for name in ("pci", "path", "mode") if name in given}
    return found | ({"gid": str(groups[given["group"]])} if "group" in given else {})


def neutral_device(name: str, found: Mapping[str, str], config: Mapping[str, str]) -> Device:
    """Our device as it was asked for; a group by its name where it still has the number that it had."""
    names = {number: group for group, number in groups_in(config).items()}
    properties = {key: found[key] for key in ("pci", "path") if key in found}
    properties["mode"] = found.get("mode", DEFAULT_MODE)
    if "gid" in found:
        properties["group"] = names.get(int(found["gid"]), found["gid"])
    if found["type"] != "gpu":
        return Device(name, "node", properties)
    if config.get(RUNTIME) == "true":
        properties["runtime"] = config.get(CAPABILITIES, "")
        properties |= {name: config[key] for name, key in _REQUIREMENTS.items() if key in config}
    return Device(name, "gpu", properties)


def keys(devices: Iterable[Device], groups: Groups) -> dict[str, str]:
    """The container's keys that our devices need beside themselves."""
    found: dict[str, str] = {}
    for device in devices:
        if "runtime" in device.properties:
            found |= {RUNTIME: "true", CAPABILITIES: device.properties["runtime"]}
            found |= {key: device.properties[name] for name, key in _REQUIREMENTS.items() if name in device.properties}
    needed = needed_groups(devices)
    return found | ({GROUPS: ",".join(f"{name}={groups[name]}" for name in sorted(needed))} if needed else {})


def groups_in(config: Mapping[str, str]) -> dict[str, int]:
    """The numbers of groups that were noted."""
    pairs = (one.partition("=") for one in config.get(GROUPS, "").split(",") if one)
    return {name: int(number) for name, _, number in pairs if number.isdigit()}
