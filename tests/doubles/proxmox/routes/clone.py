"""``/nodes/{node}/lxc/{vmid}/clone``: a copy of a container, under another number."""

from __future__ import annotations

import re
import secrets
from copy import deepcopy

from tests.doubles.proxmox import disks
from tests.doubles.proxmox.call import Call, answers
from tests.doubles.proxmox.errors import ApiError, died
from tests.doubles.proxmox.firewall import Firewall
from tests.doubles.proxmox.guest import Config, Guest, form, parts, volumes
from tests.doubles.proxmox.privileges import check_bridge
from tests.doubles.proxmox.routes.status import is_running
from tests.doubles.proxmox.schema import joined
from tests.doubles.proxmox.tasks import Task

LEFT = re.compile(r"unused\d+|rootfs|mp\d+|lock|template|parent|snaptime|snapstate")


@answers("POST /nodes/{node}/lxc/{vmid}/clone")
def clone(call: Call) -> object:
    """Copy in full: a stopped container, or a snapshot of a running one. Both are locked meanwhile."""
    world = call.world
    if call.text("pool"):
        world.check_pool(call.text("pool"))
    if call.text("storage"):
        world.storage(call.text("storage"), call.node.name)
    if call.text("target") not in ("", "localhost", call.node.name):
        raise died(f"can't clone CT to node '{call.text('target')}' (CT uses local storage)")
    world.check_quorum()
    with world.locks.config(call.vmid), world.lock:
        source = call.guest()
        source.check_lock()
        world.check_unused(call.number("newid"))
        config, mounts = _new_config(call, source)
        stub = Guest(call.number("newid"), call.node.name, {**config, "lock": "create"}, template=source.template)
        source.config["lock"] = "disk"
        world.guests[stub.vmid] = stub
        world.firewalls[stub.vmid] = deepcopy(world.firewalls.get(source.vmid, Firewall()))
    return call.begin("vzclone", call.vmid, lambda task: _copy(call, source, stub, mounts, task))


def _new_config(call: Call, source: Guest) -> tuple[Config, Config]:
    """The options of the copy, and the mount points whose volumes are to be copied."""
    name = call.text("snapname")
    if name and name not in source.snapshots:
        raise died(f"snapshot '{name}' does not exist")
    old = source.snapshots[name] if name else source.config
    if call.given.get("full") == "0":
        volid = parts("rootfs", old["rootfs"])["volume"]
        raise died(f"Linked clone feature for '{volid}' is not available")
    for option, given in volumes(old):
        if given["kind"] != "volume":
            raise died(f"unable to clone mountpoint '{option}' (type {given['kind']})")
        target = call.text("storage") or disks.storage_of(given["volume"])
        call.check(f"/storage/{target}", "Datastore.AllocateSpace")
    if is_running(call) and not name:
        raise died("Full clone of a running container is only possible from a snapshot")
    config = {option: _value(call, option, value) for option, value in old.items() if not LEFT.fullmatch(option)}
    config.update({key: call.text(key) for key in ("hostname", "description") if call.text(key)})
    return config, {option: old[option] for option, _ in volumes(old)}


def _value(call: Call, option: str, value: str) -> str:
    """An option of the copy: interfaces get an address of their own."""
    if not re.fullmatch(r"net\d+", option):
        return value
    check_bridge(call, value)
    mac = "BC:24:11:" + ":".join(f"{byte:02X}" for byte in secrets.token_bytes(3))
    return joined(form(option), {**parts(option, value), "hwaddr": mac})


def _copy(call: Call, source: Guest, stub: Guest, mounts: Config, task: Task) -> None:
    world = call.world
    task.say(f"creating a clone of container {source.vmid} with ID {stub.vmid}")
    made: Config = {}
    try:
        made = disks.copy(world, stub.node, mounts, stub.vmid, call.text("storage"))
        task.pause(world.tasks.slow.get("copy", 0))
        world.containers.copy(source.vmid, stub.vmid, call.text("snapname"))
    except ApiError as error:
        disks.free(world, stub.node, disks.owned(made))
        world.remove_guest(stub.vmid)
        raise died(f"clone failed: {error.message.strip()}") from error
    finally:
        source.config.pop("lock", None)
    with world.lock:
        stub.config = {**{name: value for name, value in stub.config.items() if name != "lock"}, **made}
        if call.text("pool"):
            world.pools[call.text("pool")].vms.add(stub.vmid)
