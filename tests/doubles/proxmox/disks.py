"""The disks of guests: made, copied, removed, each under the lock of its storage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.doubles.proxmox.errors import died
from tests.doubles.proxmox.formats import size_text
from tests.doubles.proxmox.guest import NEW_DISK, form, volumes
from tests.doubles.proxmox.schema import joined
from tests.doubles.proxmox.storage import GIB, Storage, Volume
from tests.doubles.proxmox.tasks import Task
from tests.doubles.proxmox.world import World


def storage_of(volid: str) -> str:
    """The storage that a volume is on."""
    return volid.partition(":")[0]


def volume_of(world: World, node: str, volid: str) -> tuple[Storage, Volume]:
    """A volume that exists, and its storage."""
    storage = world.storage(storage_of(volid), node)
    if volid not in storage.on(node):
        raise died(f"volume '{volid}' does not exist")
    return storage, storage.on(node)[volid]


def mount_text(option: str, given: Mapping[str, str], volume: Volume) -> str:
    """A mount point as configurations have it."""
    kept = {name: value for name, value in given.items() if name != "kind"}
    return joined(form(option), {**kept, "volume": volume.volid, "size": size_text(volume.size)})


def make(world: World, node: str, vmid: int, wanted: Mapping[str, str], task: Task | None = None) -> dict[str, str]:
    """The mount points of a guest, with a volume for each ``STORAGE:GiB``; none is left when one cannot be made."""
    made: list[str] = []
    found: dict[str, str] = {}
    try:
        for option, given in volumes(wanted):
            new = NEW_DISK.fullmatch(given["volume"])
            if not new:
                found[option] = wanted[option]
                continue
            with world.locks.storage(node, new[1]):
                if task:
                    task.pause(world.tasks.slow.get("allocate", 0))
                volume = world.storage(new[1], node).allocate(node, vmid, int(float(new[2]) * GIB))
            made.append(volume.volid)
            found[option] = mount_text(option, given, volume)
    except Exception:
        free(world, node, made)
        raise
    return found


def free(world: World, node: str, volids: Iterable[str]) -> None:
    """Remove volumes."""
    for volid in volids:
        world.storages[storage_of(volid)].on(node).pop(volid, None)


def owned(config: Mapping[str, str]) -> list[str]:
    """The volumes of a configuration, unused ones included."""
    mounted = [given["volume"] for _, given in volumes(config) if given["kind"] == "volume"]
    return mounted + [value for name, value in config.items() if name.startswith("unused")]


def owner_of(world: World, node: str, volid: str) -> int:
    """The number that a volume bears; 0 for one that is not there."""
    found = world.storages[storage_of(volid)].on(node).get(volid)
    return found.vmid if found else 0


def under_number(world: World, node: str, vmid: int) -> list[str]:
    """Every volume that bears a number, on all storages that the node can use and that hold containers."""
    usable = [one for one in world.storages.values() if one.is_usable(node) and "rootdir" in one.content]
    return [volid for storage in usable for volid, volume in storage.on(node).items() if volume.vmid == vmid]


def copy(world: World, node: str, config: Mapping[str, str], newid: int, target: str) -> dict[str, str]:
    """New volumes as large as those of a configuration, on ``target`` or where those are."""
    sizes = {
        option: (given, volume_of(world, node, given["volume"])[1])
        for option, given in volumes(config)
        if given["kind"] == "volume"
    }
    wanted = {
        option: joined(
            form(option),
            {
                **{name: value for name, value in given.items() if name not in ("kind", "size")},
                "volume": f"{target or storage_of(volume.volid)}:{volume.size / GIB:.9f}",
            },
        )
        for option, (given, volume) in sizes.items()
    }
    return make(world, node, newid, wanted)
