"""``/nodes/{node}/lxc/{vmid}/snapshot``: list, take, delete and go back; and whether that can be done at all."""

from __future__ import annotations

from collections.abc import Mapping

from tests.doubles.proxmox import disks
from tests.doubles.proxmox.call import Call, answers
from tests.doubles.proxmox.errors import died
from tests.doubles.proxmox.guest import Guest, typed, volumes
from tests.doubles.proxmox.routes.status import is_running, start
from tests.doubles.proxmox.storage import Storage, Volume
from tests.doubles.proxmox.tasks import Task

AT = "/nodes/{node}/lxc/{vmid}"
RESERVED = ("current", "vzdump")


@answers(f"GET {AT}/snapshot")
def listed(call: Call) -> object:
    """The snapshots, and ``current``, which is none."""
    guest = call.guest()
    found: list[dict[str, object]] = []
    for name, config in guest.snapshots.items():
        entry = {"name": name, "snaptime": int(config["snaptime"]), "description": config.get("description", "")}
        found.append(entry | {key: config[key] for key in ("parent", "snapstate") if key in config})
    now: dict[str, object] = {"name": "current", "description": "You are here!", "digest": guest.digest}
    now["running"] = int(is_running(call))
    if "parent" in guest.config:
        now["parent"] = guest.config["parent"]
    return [*found, now]


@answers(f"GET {AT}/snapshot/{{snapname}}/config")
def config(call: Call) -> object:
    """The configuration as it was."""
    return typed(_snapshot(call.guest(), call.text("snapname")))


def _snapshot(guest: Guest, name: str) -> dict[str, str]:
    if name not in guest.snapshots:
        raise died(f"snapshot '{name}' does not exist")
    return guest.snapshots[name]


def _disks(call: Call, config: Mapping[str, str]) -> list[tuple[Storage, Volume]]:
    """The volumes of a configuration; ``rootfs`` and mount points of storages only."""
    mounted = [given["volume"] for _, given in volumes(config) if given["kind"] == "volume"]
    return [disks.volume_of(call.world, call.node.name, volid) for volid in mounted]


def can_snapshot(call: Call, config: Mapping[str, str]) -> bool:
    """Whether all that is mounted can be remembered: no bind mounts, no devices, no raw files."""
    kinds = [given["kind"] for _, given in volumes(config)]
    return set(kinds) == {"volume"} and all(storage.can_snapshot for storage, _ in _disks(call, config))


@answers(f"GET {AT}/feature")
def feature(call: Call) -> object:
    """Whether a snapshot, a linked clone or a copy can be made of it."""
    config = call.guest().config
    name = call.text("feature")
    only_volumes = all(given["kind"] == "volume" for _, given in volumes(config))
    has = can_snapshot(call, config) if name == "snapshot" else only_volumes and name == "copy"
    return {"hasFeature": int(has)}


@answers(f"POST {AT}/snapshot")
def take(call: Call) -> object:
    """Take one; whether that can be done is found out by the task."""
    name = call.text("snapname")
    if name in RESERVED:
        raise died(f"unable to use snapshot name '{name}' (reserved name)")

    def work(task: Task) -> None:
        guest = _prepare(call, name)
        try:
            task.pause(call.world.tasks.slow.get("volume-snapshot", 0))
        finally:
            guest.config.pop("lock", None)
        for _, volume in _disks(call, guest.config):
            volume.snapshots.append(name)
        call.world.containers.snapshot(call.vmid, name)
        guest.remember(name, call.text("description"))

    return call.begin("vzsnapshot", call.vmid, work)


def _prepare(call: Call, name: str) -> Guest:
    with call.world.locks.config(call.vmid):
        guest = call.guest()
        guest.check_lock()
        if name in guest.snapshots:
            raise died(f"snapshot name '{name}' already used")
        if not can_snapshot(call, guest.config):
            raise died("snapshot feature is not available")
        guest.config["lock"] = "snapshot"
        return guest


@answers(f"DELETE {AT}/snapshot/{{snapname}}")
def delete(call: Call) -> object:
    """Delete one."""
    name = call.text("snapname")

    def work(task: Task) -> None:
        del task
        guest = call.guest()
        kept = _snapshot(guest, name)
        with call.world.locks.config(call.vmid):
            guest.check_lock()
            for _, volume in _disks(call, kept):
                volume.snapshots.remove(name)
            call.world.containers.forget(call.vmid, name)
            guest.forget(name)
            for volid in sorted(set(disks.owned(kept)) - set(disks.owned(guest.config))):
                guest.add_unused(volid)

    return call.begin("vzdelsnapshot", call.vmid, work)


@answers(f"POST {AT}/snapshot/{{snapname}}/rollback")
def rollback(call: Call) -> object:
    """Go back: a running container is stopped for it, and stays so unless ``start`` was asked for."""
    name = call.text("snapname")

    def work(task: Task) -> None:
        _go_back(call, name, task)
        if call.flag("start"):
            start(call)

    return call.begin("vzrollback", call.vmid, work)


def _go_back(call: Call, name: str, task: Task) -> None:
    world = call.world
    with world.locks.config(call.vmid):
        guest = call.guest()
        kept = _snapshot(guest, name)
        for storage, volume in _disks(call, kept):
            storage.check_rollback(volume, name)
        guest.check_lock()
        if is_running(call):
            world.containers.stop(call.vmid)
        guest.config["lock"] = "rollback"
        task.pause(world.tasks.slow.get("volume-rollback", 0))  # killed here, it leaves its lock behind
        guest.config.pop("lock", None)
        lost = set(disks.owned(guest.config)) - set(disks.owned(kept))
        guest.go_back(name)
        for volid in sorted(lost - set(disks.owned(guest.config))):
            guest.add_unused(volid)
        world.containers.rollback(call.vmid, name)
