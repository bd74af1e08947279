"""Translate our values into Incus' and back: what ``request_for`` writes is read back equal by ``instance_of``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from provisioner.values.plain_data import Foreign
from provisioner.values.state import Device, Instance, InstanceKind, Snapshot, Status

LAB, KIND, IMAGE = "user.provisioner.lab", "user.provisioner.kind", "user.provisioner.image"
ARTIFACT, READY = "user.provisioner.artifact", "user.provisioner.ready"

TCP, UDP, HOST = "tcp", "udp", "host"
_STATUS = {"Running": Status.RUNNING, "Stopped": Status.STOPPED, "Frozen": Status.FROZEN}
_DECIMAL = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15, "EB": 10**18}
_BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50, "EiB": 2**60}
_UNITS = _DECIMAL | _BINARY
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


def request_for(instance: Instance, root: Mapping[str, str], pool: str, groups: Groups = NO_GROUPS) -> dict[str, Any]:
    """The body that creates ``instance``; ``root`` is the profile's root disk, ``pool`` holds the artifact volumes.

    ``groups`` are the container's, by name; a device of another group is left out: the container has to be there first.
    """
    known_groups = {None, *groups}
    possible = [device for device in instance.devices if device.properties.get("group") in known_groups]
    config = {
        LAB: instance.lab,
        KIND: str(instance.kind),
        IMAGE: instance.image,
        "security.privileged": "false",
        **_without_empty(_limits(instance)),
        **keys(possible, groups),
    }
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
    groups: Groups = NO_GROUPS,
) -> dict[str, Any]:
    """The body of an existing container with what ``instance`` says; whatever has no field in ``Instance`` stays."""
    config = _updated_config(body, instance, groups)
    old_devices = body["devices"]
    devices = _roots(old_devices, instance.disk, root)
    for name, device in old_devices.items():
        is_ours = is_root(device) or _neutral_device(name, device, body["config"]) is not None
        if not is_ours:
            devices[name] = device
    for wanted in instance.devices:
        new = _incus_device(wanted, pool, groups)
        old = old_devices.get(wanted.name)
        is_same = old is not None and _is_same_device(wanted.name, old, new, config)
        devices[wanted.name] = old if is_same else new
    return {**body, "config": config, "devices": devices}


def _updated_config(body: Mapping[str, Any], instance: Instance, groups: Groups) -> dict[str, str]:
    """The container's keys: those that are not ours as they are, ours as the instance says."""
    limits = _limits(instance)
    our_keys = set(limits)
    if any(is_our_device(name, device) for name, device in body["devices"].items()):
        our_keys.update(KEYS)
    config = {key: value for key, value in body["config"].items() if key not in our_keys}
    config |= _without_empty({**limits, **keys(instance.devices, groups)})
    return config


def _without_empty(values: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in values.items() if value}


def _is_same_device(name: str, old: Mapping[str, str], new: Mapping[str, str], config: Mapping[str, str]) -> bool:
    """Whether two forms of a device mean the same."""
    return _neutral_device(name, old, config) == _neutral_device(name, new, config)


def without_publications(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a container without the ports of the host that it listens on."""
    devices = {name: device for name, device in body["devices"].items() if device["type"] != "proxy"}
    return {**body, "devices": devices}


def instance_of(found: Mapping[str, Any], host: str) -> Instance:
    """The container as Incus says it is; only what is set on it, not what its profile sets."""
    config = found["config"]
    snapshots = [snapshot_of(snapshot) for snapshot in found.get("snapshots") or ()]
    return Instance(
        name=found["name"],
        host=host,
        lab=config.get(LAB, ""),
        image=config.get(IMAGE, ""),
        cpu=_count(config.get("limits.cpu")),
        memory=bytes_of(config.get("limits.memory")),
        disk=_disk_size(found["devices"]),
        nesting=config.get("security.nesting") == "true",
        devices=_neutral_devices(found["devices"], config),
        kind=InstanceKind(config.get(KIND, InstanceKind.SERVING)),
        status=_STATUS.get(found["status"], Status.ERROR),
        address=address_in(found.get("state") or {}),
        snapshots=tuple(sorted(snapshots, key=_age)),
    )


def _disk_size(devices: Mapping[str, Mapping[str, str]]) -> int | None:
    """The size of the container's own disk; None where it has none of its own, or one without a size."""
    for device in devices.values():
        if is_root(device):
            return bytes_of(device.get("size"))
    return None


def _neutral_devices(devices: Mapping[str, Mapping[str, str]], config: Mapping[str, str]) -> tuple[Device, ...]:
    """Our devices among those of a container, by name."""
    ours = []
    for name in sorted(devices):
        device = _neutral_device(name, devices[name], config)
        if device is not None:
            ours.append(device)
    return tuple(ours)


_SAID = re.compile(r"(user|volatile|image)[.].*|limits[.](cpu|memory)|security[.](nesting|privileged)")
"""Keys that a block says, that Incus keeps for itself, and one that is told by itself (privileged)."""
_VALUES_NOT_TOLD = re.compile(r"\A((environment|cloud-init)[.][^:]*): .*", re.DOTALL)
"""Keys whose values may be secrets."""
_ORIGIN = {True: "", False: " (of its profile)"}
"""By whether something is the container's own."""


def beyond_the_file(found: Mapping[str, Any]) -> list[str]:
    """Return in words what of a container and its profiles no block of a file can say.

    Its own disk, and what else is mounted in it, are not among it, nor the card that every container has.
    """
    own, lines = found["config"], list[str]()
    for key, value in sorted(found["expanded_config"].items()):
        is_limit_of_profile = key not in own and key.startswith("limits.")
        if is_limit_of_profile or not _SAID.fullmatch(key):
            lines.append(_VALUES_NOT_TOLD.sub(r"\1", f"{key}: {value}") + _ORIGIN[key in own])
    for name, device in sorted(found["expanded_devices"].items()):
        is_usual = device["type"] in ("disk", "none") or (name, device["type"]) == ("eth0", "nic")
        if not is_usual and _neutral_device(name, device, own) is None:
            options = ", ".join(map("=".join, sorted(device.items())))
            lines.append(f"device {name}: {options}{_ORIGIN[name in found['devices']]}")
    return [Foreign(line) for line in lines]


def publications_of(found: Mapping[str, Any]) -> tuple[Device, ...]:
    """Return every proxy device of a container, its profiles' included."""
    devices = _neutral_devices(found["expanded_devices"], found["config"])
    return tuple(device for device in devices if device.kind == "publish")


def ports_of_others(instances: Iterable[Mapping[str, Any]], lab: str) -> dict[tuple[str, int], str]:
    """Return protocol and number of the host's ports that instances of others publish now, each with whose it is."""
    taken: dict[tuple[str, int], str] = {}
    for found in instances:
        of_lab = (found["config"] or {}).get(LAB, "")
        if found["status"] == "Stopped" or of_lab == lab:
            continue
        name = f"{found['type']} {found['name']}"
        owner = Foreign(f"{name} of lab {of_lab}" if of_lab else name)
        for device in (found["expanded_devices"] or {}).values():
            is_on_host = device["type"] == "proxy" and device.get("bind", HOST) == HOST
            if is_on_host:
                taken |= dict.fromkeys(_ports_in(device["listen"]), owner)
    return taken


def _ports_in(listen: str) -> list[tuple[str, int]]:
    """Return protocol and number of each port that others listen on; none beside which IPv4 has its ports still."""
    protocol, _, address = listen.partition(":")
    host, _, ports = address.rpartition(":")
    is_of_ipv6_alone = host.startswith("[") and host != "[::]"
    if protocol not in (TCP, UDP) or is_of_ipv6_alone:
        return []
    return [(protocol, number) for number in _numbers(ports)]


def snapshot_of(found: Mapping[str, Any]) -> Snapshot:
    """The snapshot as Incus says it is."""
    volumes = [device["source"] for device in found["devices"].values() if _is_volume(device)]
    name = found["name"].rpartition("/")[2]
    return Snapshot(name, found["created_at"], tuple(sorted(volumes)))


def is_root(device: Mapping[str, str]) -> bool:
    """Whether the device is the container's own disk."""
    return device["type"] == "disk" and device.get("path") == "/"


def _is_volume(device: Mapping[str, str]) -> bool:
    """Whether the device is a volume of a pool, such as those of artifacts."""
    is_disk_of_pool = device["type"] == "disk" and "pool" in device
    return is_disk_of_pool and not is_root(device)


def address_in(state: Mapping[str, Any]) -> str | None:
    """The container's IPv4 address on ``eth0``, or None."""
    networks = state.get("network") or {}
    card = networks.get("eth0") or {}
    for address in card.get("addresses", ()):
        if address["family"] == "inet" and address["scope"] == "global":
            return str(address["address"])
    return None


def bytes_of(text: str | None) -> int | None:
    """A size of Incus in bytes; 0, which no file can ask for, when it is a share of the host ("50%")."""
    if not text:
        return None
    match = re.fullmatch(r"(\d+)\s*(\w*)", text)
    if match is None:
        return 0
    number, unit = match.groups()
    return int(number) * _UNITS.get(unit, 0)


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
    name, own = _own_root(devices) or ("root", root)
    if disk is not None:
        is_same = name in devices and bytes_of(own.get("size")) == disk
        return {name: own if is_same else {**own, "size": str(disk)}}
    rest = _without_size(own)
    return {} if rest == _without_size(root) else {name: rest}


def _own_root(devices: Mapping[str, Mapping[str, str]]) -> tuple[str, Mapping[str, str]] | None:
    """The name of the container's own root disk and the disk."""
    for name, device in devices.items():
        if is_root(device):
            return name, device
    return None


def _without_size(device: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in device.items() if key != "size"}


def _count(text: str | None) -> int | None:
    """The number of CPUs in ``limits.cpu``, which may also be a list of CPUs to be bound to ("0-3,8")."""
    if not text:
        return None
    return int(text) if text.isdigit() else len(_numbers(text))


def _numbers(text: str) -> list[int]:
    """Return the numbers of a list of Incus such as "0-3,8"."""
    numbers = list[int]()
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def _incus_device(device: Device, pool: str, groups: Groups) -> dict[str, str]:
    properties = device.properties
    if device.kind in ("gpu", "node"):
        return incus_device(device, groups)
    if device.kind == "volume":
        disk = {"type": "disk", "pool": pool, "source": properties["volume"], "path": properties["path"]}
        if properties.get("readonly") == "true":
            disk["readonly"] = "true"
        return disk
    protocol = properties.get("protocol", TCP)
    listen, connect = f"{protocol}:{properties['listen']}", f"{protocol}:{properties['connect']}"
    says_whose = {"proxy_protocol": "true"} if properties.get("proxy_protocol") == "true" else {}
    return {"type": "proxy", "listen": listen, "connect": connect, "bind": HOST, **says_whose}


def _neutral_device(name: str, found: Mapping[str, str], config: Mapping[str, str]) -> Device | None:
    """The device as ours; None for one that is not of a kind that we make."""
    if is_our_device(name, found):
        return neutral_device(name, found, config)
    if found["type"] == "proxy":
        protocol = UDP if found["listen"].startswith(f"{UDP}:") else TCP
        ends = {end: found[end].removeprefix(f"{protocol}:") for end in ("listen", "connect")}
        if found.get("bind", HOST) != HOST:
            ends["bind"] = found["bind"]
        if found.get("proxy_protocol") == "true":
            ends["proxy_protocol"] = "true"
        return Device(name, "publish", ends if protocol == TCP else {**ends, "protocol": protocol})
    if _is_volume(found):
        readonly = found.get("readonly", "false")
        return Device(name, "volume", {"volume": found["source"], "path": found["path"], "readonly": readonly})
    return None


# Cards and device files in Incus' words and back: devices, keys of the container, numbers of its groups.


def is_our_device(name: str, found: Mapping[str, str]) -> bool:
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
