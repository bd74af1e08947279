"""Translate our values into Proxmox' and back: what ``options_for`` writes, ``instance_of`` reads back equal. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from provisioner.hosts.proxmox import marks
from provisioner.hosts.proxmox.guest import CARD, Guest, options_of
from provisioner.hosts.proxmox.marks import Mark, Mount
from provisioner.values.errors import ProviderError
from provisioner.values.plain_data import Foreign
from provisioner.values.state import Device, Instance

MIB, GIB = 2**20, 2**30
DEFAULT_MEMORY = 512 * MIB
"""Proxmox' own."""
DEFAULT_DISK = 8 * 2**30
ROOT_SLOT = "rootfs"
DEVICE_SLOTS = 256
DEFAULT_MODE = "0660"
_DEVICE_DEFAULTS: Mapping[str, Any] = {"uid": 0, "gid": 0, "mode": DEFAULT_MODE}

Options = dict[str, str | None]
"""What a container's options are to be; None: there shall be none."""


def mark_for(wanted: Instance, guest: Guest, layout: MountLayout) -> Mark:
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
        ungrown=dict(layout.ungrown),
    )


def options_for(wanted: Instance, guest: Guest, layout: MountLayout) -> Options:
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
        changed["description"] = marks.mark_text(text, mark)
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
        devices=artifact_devices(guest),
        kind=mark.kind,
        status=guest.status,
        address=guest.address,
        snapshots=guest.snapshots,
        settings=settings_of(guest),
        artifact_disks=copy_sizes(guest),
    )


def _disk_size(config: Mapping[str, str], mark: Mark) -> int | None:
    """The size of the root file system's disk; None where the file leaves it out, or it has none."""
    is_left_out = "disk" in mark.asked and mark.asked["disk"] is None
    if is_left_out:
        return None
    if ROOT_SLOT in mark.ungrown:
        return mark.ungrown[ROOT_SLOT]
    size = bytes_of(property_parts(config.get(ROOT_SLOT, ""), "volume").get("size", ""))
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
        "network": network_of(config.get("net0", ""), mac=decides_mac),
        "features": tuple(sorted(_features(config.get("features", "")))),
        "devices": _device_files(config, asked),
        "mounts": extra_mounts(guest),
        "unprivileged": config.get("unprivileged") == "1",
        "onboot": config.get("onboot") == "1",
        "order": int(property_parts(config.get("startup", ""), "order").get("order", "0")),
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
        options["net0"] = network_option(settings["network"], guest.config.get("net0", ""))
    if "devices" in settings:
        options |= _device_options(settings["devices"], guest.config)
    return options


def _features_option(features: Iterable[str]) -> str | None:
    pairs = [feature if "=" in feature else f"{feature}=1" for feature in features]
    return ",".join(pairs) or None


def _startup(order: int, current: str) -> str | None:
    """The place in the order of starts; delays that somebody has set stay."""
    values = property_parts(current, "order")
    values.pop("order", None)
    if order:
        values = {"order": str(order), **values}
    return property_string(values) or None


def _features(text: str) -> Iterator[str]:
    for name, value in property_parts(text).items():
        if value == "1":
            yield name
        elif value not in ("0", ""):
            yield f"{name}={value}"


def _devices(config: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in config.items() if name.startswith("dev") and name[3:].isdecimal()}


def _device(text: str) -> dict[str, Any]:
    given = property_parts(text, "path")
    mode = given.get("mode", DEFAULT_MODE)
    owner = {name: whole_number(given.get(name, "")) for name in ("uid", "gid")}
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
    free = (f"dev{number}" for number in range(DEVICE_SLOTS) if f"dev{number}" not in current)
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
    before = property_parts(current, "path")
    if "deny-write" in before:
        values["deny-write"] = before["deny-write"]
    return property_string(values, "path")


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
        return is_same_network(wanted, current)
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


# Property strings (`value,key=value`), sizes and numbers as text.

_SIZE_TEXT = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)([KMGT]?)")
_MOST_DIGITS = 15
_UNITS = {"": 1, "K": 2**10, "M": MIB, "G": GIB, "T": 2**40}


def property_parts(text: str, default: str = "") -> dict[str, str]:
    """The parts of a property string; what has no key is that of ``default``."""
    found: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if equals:
            found[key] = value
        elif key:
            found[default] = key
    return found


def property_string(given: Mapping[str, str], default: str = "") -> str:
    """The property string of parts, that of ``default`` first and without its key."""
    words = [f"{key}={value}" for key, value in given.items() if key != default]
    if default in given:
        words.insert(0, given[default])
    return ",".join(words)


def bytes_of(size: str) -> int:
    """The bytes of a size such as ``8G``; 0 where there is none."""
    match = _SIZE_TEXT.fullmatch(size)
    if match is None:
        return 0
    number, unit = match.groups()
    return int(float(number) * _UNITS[unit])


def whole_number(text: str) -> int:
    """The whole number that the text is; 0 where it is none."""
    is_number = text.isascii() and text.isdigit()
    return int(text) if is_number and len(text) <= _MOST_DIGITS else 0


def mebibytes(size: int) -> int:
    """Whole MiB that hold ``size``: Proxmox counts in them."""
    return -(-size // MIB)


def gibibytes(size: int) -> str:
    """``size`` as the GiB of a new disk, exact to a MiB, which is what Proxmox rounds down to."""
    return f"{max(1, mebibytes(size)) / 1024:.10f}".rstrip("0").rstrip(".")


# What a container has and no block of a file can say.

_SAID = re.compile(
    r"arch|cores|description|dev\d+|digest|features|hostname|lock|memory|mp\d+|net0|onboot|ostype|parent|protection|"
    r"rootfs|snaptime|startup|swap|tags|unprivileged|unused\d+"
)
"""Options that a block says, that Proxmox keeps for itself, or that are told as what no snapshot holds (``mp``)."""
_VARIABLES = re.compile(r"(?<=\Aenv): .*", re.DOTALL)
"""The variables of a container's first process, which may be secrets: told without their values, also in raw lines."""
_RAW_DEVICES = ("lxc.cgroup.devices.allow", "lxc.cgroup2.devices.allow", "lxc.mount.entry")
_ALREADY = "; take it out before the block asks for that device or card"


def beyond_the_file(config: Mapping[str, Any]) -> list[str]:
    """Return in words what of a configuration, as the API gives it, no block can say."""
    lines = [f"{name}: {value}" for name, value in sorted(options_of(config).items()) if not _SAID.fullmatch(name)]
    for name, decided in (("net0", _SAID_OF_CARD), ("startup", {"order"})):
        given = property_parts(str(config.get(name, "")), "order")
        beyond = {key: value for key, value in given.items() if key not in decided}
        if beyond:
            lines.append(f"{name}: {property_string(beyond)}")
    for key, value in config.get("lxc") or ():
        if key.startswith("lxc.environment"):
            value = value.partition("=")[0]  # noqa: PLW2901
        lines.append(f"{key}: {value}{_ALREADY if key in _RAW_DEVICES else ''}")
    return [Foreign(_VARIABLES.sub("", line)) for line in lines]


# The network card: the file's options and `net0`.

_CARD_KEYS = {"gateway": "gw", "ip6": "ip6", "gateway6": "gw6", "vlan": "tag", "mac": "hwaddr"}
_DECIDED_CARD_KEYS = {"bridge", "ip", "gw", "ip6", "gw6", "tag", "firewall"}
_SAID_OF_CARD = _DECIDED_CARD_KEYS | {"name", "hwaddr", "type"}
_NO_ADDRESS = {"manual", ""}


def network_of(net: str, *, mac: bool) -> dict[str, Any]:
    """What the file would say of a card; its MAC address only where the file decides it."""
    values = property_parts(net)
    if not values:
        return {}
    address = values.get("ip", "none")
    card: dict[str, Any] = {
        "bridge": values.get("bridge", ""),
        "ip": "none" if address in _NO_ADDRESS else address,
        "firewall": values.get("firewall") == "1",
    }
    for option, key in _CARD_KEYS.items():
        if values.get(key, "") not in _NO_ADDRESS:
            card[option] = values[key]
    if "vlan" in card:
        card["vlan"] = int(card["vlan"])
    mac_address = str(card.pop("mac", "")).upper()
    if mac:
        card["mac"] = mac_address
    return card


def network_option(wanted: Mapping[str, Any], current: str = "") -> str:
    """``net0`` as it is to be.

    What the file has no option for (rate, MTU) stays, and so does the MAC address unless the file decides it: without
    one Proxmox would give the card another one, and its DHCP server another address.
    """
    kept = {key: value for key, value in property_parts(current).items() if key not in _DECIDED_CARD_KEYS}
    values = {"name": CARD, **kept}
    values["bridge"] = str(wanted["bridge"])
    values["ip"] = "manual" if wanted["ip"] == "none" else str(wanted["ip"])
    for option, key in _CARD_KEYS.items():
        if option in wanted:
            values[key] = str(wanted[option])
    if wanted.get("firewall"):
        values["firewall"] = "1"
    values["type"] = "veth"
    return property_string(values)


def is_same_network(one: str, other: str) -> bool:
    """Whether two cards are alike, in whatever order they are written."""
    return _card_meaning(one) == _card_meaning(other)


def released_network(net: str) -> str:
    """The card of a copy: an address that another one has is asked for anew."""
    given = property_parts(net)
    for key, gateway, instead in (("ip", "gw", "dhcp"), ("ip6", "gw6", "auto")):
        if "/" in given.get(key, ""):
            given[key] = instead
            given.pop(gateway, None)
    return property_string(given)


def _card_meaning(net: str) -> dict[str, str]:
    given = {"ip": "manual", "ip6": "manual", "firewall": "0", "type": "veth", **property_parts(net)}
    return {**given, "hwaddr": given.get("hwaddr", "").upper()}


# Mount points: the file's `mounts`, and the copies of artifact volumes. Folders and devices of the host that somebody
# mounted by hand have no word here, and are left as they are.

MOUNT_SLOTS = 256
_MOUNT_SLOT = re.compile(r"mp\d+")
_NAMES_VOLUME = re.compile(r"rootfs|mp\d+|unused\d+")


@dataclass(frozen=True, slots=True)
class MountedDisk:
    """A mount point that is a volume on a storage."""

    slot: str
    text: str
    volume: str
    path: str
    size: int
    backup: bool

    @property
    def storage(self) -> str:
        """The storage that it is on."""
        return self.volume.partition(":")[0]

    def option(self, *, backup: bool, size: int) -> str:
        """The mount point with another choice; its volume, and whatever has no word here, stay."""
        given = property_parts(self.text, "volume")
        return property_string({**given, "backup": str(int(backup)), "size": f"{mebibytes(size)}M"}, "volume")


@dataclass(slots=True)
class MountLayout:
    """What has to be done to a container's mount points.

    ``options`` to be written (None: detached), ``sizes`` to be grown to, what the mark says then: ``mounts``,
    volumes to ``discard``, and disks that are ``ungrown``.
    """

    options: dict[str, str | None] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    mounts: list[Mount] = field(default_factory=list)
    discard: list[str] = field(default_factory=list)
    ungrown: Mapping[str, int] = field(default_factory=dict)


def mounted_disks(config: Mapping[str, str]) -> dict[str, MountedDisk]:
    """The mounted volumes of a configuration, by their slots; without its root file system."""
    disks = {}
    for slot, text in config.items():
        if not _MOUNT_SLOT.fullmatch(slot):
            continue
        values = property_parts(text, "volume")
        volume = values.get("volume", "/")
        if not volume.startswith("/"):
            size = bytes_of(values.get("size", ""))
            disks[slot] = MountedDisk(slot, text, volume, values.get("mp", ""), size, values.get("backup") == "1")
    return disks


def volumes_named(config: Mapping[str, str]) -> frozenset[str]:
    """Every volume that a configuration names: of the root file system, of mount points, and unused ones."""
    volumes = set()
    for name, text in config.items():
        if not _NAMES_VOLUME.fullmatch(name):
            continue
        volume = property_parts(text, "volume").get("volume", "/")
        if not volume.startswith("/"):
            volumes.add(volume)
    return frozenset(volumes)


def mounts_of_the_host(config: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The folders and devices of the host that are mounted, each with its path in the container."""
    for slot, text in sorted(config.items()):
        if not _MOUNT_SLOT.fullmatch(slot):
            continue
        values = property_parts(text, "volume")
        source = values.get("volume", "")
        if source.startswith("/"):
            yield source, values.get("mp", "")


def artifact_devices(guest: Guest) -> tuple[Device, ...]:
    """The artifact volumes of a container, by name; one whose mount point somebody has removed is not there."""
    copies = _copy_disks(guest)
    mounts = [mount for mount in guest.artifact_mounts if mount.slot is None or mount.path in copies]
    mounts.sort(key=lambda mount: mount.name)
    return tuple(mount.device for mount in mounts)


def copy_sizes(guest: Guest) -> dict[str, int]:
    """The bytes of the disks that hold copies of artifact volumes, by the names of these volumes."""
    copies = _copy_disks(guest)
    return {mount.volume: copies[mount.path].size for mount in guest.artifact_mounts if mount.path in copies}


def extra_mounts(guest: Guest) -> tuple[Mapping[str, Any], ...]:
    """The other mounted disks by the names of the file; a storage that it left to us is left out."""
    asked = {str(entry["path"]): entry for entry in guest.mark.extra} if guest.mark else {}
    entries: list[Mapping[str, Any]] = []
    for path, disk in sorted(_own_disks(guest).items()):
        size = guest.ungrown.get(disk.slot, disk.size)
        entry = {"path": path, "size": size, "storage": disk.storage, "backup": disk.backup}
        if path in asked:
            asked_size = asked[path]["size"]
            if mebibytes(asked_size) * MIB == size:
                entry["size"] = asked_size
            if "storage" not in asked[path]:
                del entry["storage"]
        entries.append(entry)
    return tuple(entries)


def mounted_volumes(config: Mapping[str, str]) -> frozenset[str]:
    """The volumes that are mounted, but for the root file system's."""
    return frozenset(disk.volume for disk in mounted_disks(config).values())


def copy_volumes(guest: Guest) -> frozenset[str]:
    """The volumes that hold copies of artifacts."""
    return frozenset(disk.volume for disk in _copy_disks(guest).values())


def mount_layout(
    guest: Guest, wanted: Instance, room: Mapping[str, int], storage: str, busy: Collection[str] = ()
) -> MountLayout:
    """How a container's mount points become what is wanted; ``ProviderError`` for what would lose data.

    ``room``: the bytes that each artifact volume needs. ``storage``: where new disks go. ``busy``: slots that are
    taken until the container's next start.
    """
    taken = {*guest.config, *busy}
    slots = [f"mp{number}" for number in range(MOUNT_SLOTS)]
    free = iter([slot for slot in slots if slot not in taken])
    discard = list(guest.mark.discard) if guest.mark else []
    work = _LayoutWork(guest, storage, free, MountLayout(discard=discard))
    work.lay_out_devices(wanted.devices, room)
    if "mounts" in wanted.settings:
        work.lay_out_extra(wanted.settings["mounts"])
    return work.layout


@dataclass(slots=True)
class _LayoutWork:
    guest: Guest
    storage: str
    free: Iterator[str]
    layout: MountLayout

    def lay_out_devices(self, devices: Sequence[Device], room: Mapping[str, int]) -> None:
        """Each volume on a mount point of its own: that of its path, where there is one."""
        copies = _copy_disks(self.guest)
        for device in devices:
            volume, path = device.properties["volume"], device.properties["path"]
            readonly = device.properties.get("readonly") == "true"
            slot = None
            if readonly:
                slot = self._slot(copies.pop(path, None), path, room[volume])
            self.layout.mounts.append(Mount(device.name, volume, path, readonly, slot))
        for disk in copies.values():
            self.layout.options[disk.slot] = None
            self.layout.discard.append(disk.volume)

    def lay_out_extra(self, mounts: Sequence[Mapping[str, Any]]) -> None:
        """Each of the file's disks; one that the file no longer has is detached, and Proxmox keeps it as unused."""
        own = _own_disks(self.guest)
        for mount in mounts:
            disk = own.pop(str(mount["path"]), None)
            if disk is None:
                text = self._fresh(mount["path"], mount["size"], str(mount.get("storage", self.storage)))
                self.layout.options[next(self.free)] = f"{text},backup={int(mount['backup'])}"
            else:
                self._lay_out_again(disk, mount)
        for disk in own.values():
            self.layout.options[disk.slot] = None

    def _lay_out_again(self, disk: MountedDisk, mount: Mapping[str, Any]) -> None:
        """A disk that is there already: larger, or with another choice of backup."""
        self._require_same(disk, mount)
        size = mebibytes(mount["size"]) * MIB
        if size > disk.size:
            self.layout.sizes[disk.slot] = size
        if mount["backup"] != disk.backup:
            self.layout.options[disk.slot] = disk.option(backup=mount["backup"], size=size)

    def _slot(self, disk: MountedDisk | None, path: str, size: int) -> str:
        if disk is None:
            slot = next(self.free)
            self.layout.options[slot] = f"{self._fresh(path, size, self.storage)},backup=0"
            return slot
        if size > disk.size:
            self.layout.sizes[disk.slot] = mebibytes(size) * MIB
        return disk.slot

    def _fresh(self, path: object, size: int, storage: str) -> str:
        return f"{storage}:{gibibytes(size)},mp={path}"

    def _require_same(self, disk: MountedDisk, wanted: Mapping[str, Any]) -> None:
        what = f"Unable to change container {self.guest.name}"
        if mebibytes(wanted["size"]) * MIB < disk.size:
            raise ProviderError(
                f"{what}: the disk at {disk.path} cannot become smaller",
                details=f"It has {disk.size} bytes, and the file says {wanted['size']}.",
                resolution=f"Write at least {disk.size // MIB}MiB, or another path for a new disk.",
            )
        if wanted.get("storage", disk.storage) != disk.storage:
            raise ProviderError(
                f"{what}: the disk at {disk.path} is on storage {disk.storage}",
                details=f"The file says {wanted['storage']}.",
                resolution=f"Move it: pct move-volume {self.guest.vmid} {disk.slot} {wanted['storage']}",
            )


def _copy_disks(guest: Guest) -> dict[str, MountedDisk]:
    """The disks that hold copies of artifact volumes, by their paths."""
    disks = mounted_disks(guest.config)
    copies: dict[str, MountedDisk] = {}
    for mount in guest.artifact_mounts:
        disk = disks.get(mount.slot) if mount.slot else None
        if disk is not None and disk.path == mount.path:
            copies[mount.path] = disk
    return copies


def _own_disks(guest: Guest) -> dict[str, MountedDisk]:
    """The other mounted disks, by their paths."""
    copies = {disk.slot for disk in _copy_disks(guest).values()}
    return {disk.path: disk for slot, disk in mounted_disks(guest.config).items() if slot not in copies}
