"""``/nodes/{node}/lxc/{vmid}/config``, resizing, the network seen from inside."""

from __future__ import annotations

import copy
import re

from tests.doubles.proxmox import disks, options
from tests.doubles.proxmox.call import Call, answers
from tests.doubles.proxmox.errors import bad_parameters, died
from tests.doubles.proxmox.formats import size_bytes, split_list
from tests.doubles.proxmox.guest import Guest, parts
from tests.doubles.proxmox.privileges import check_change
from tests.doubles.proxmox.routes.status import is_running
from tests.doubles.proxmox.schema import methods
from tests.doubles.proxmox.tasks import Task

AT = "/nodes/{node}/lxc/{vmid}"
NO_OPTIONS = {"node", "vmid", "digest", "delete", "revert"}
NOT_GROWN = """resize2fs 1.47.2 (1-Jan-2025)
resize2fs: Permission denied to resize filesystem
Failed to update the container's filesystem: command 'unshare -m -- sh -c 'mount --make-rprivate / && \
mount /dev/{disk} /tmp && resize2fs /dev/{disk}'' failed: exit code 1
"""
"""What PVE says of a file system that did not grow with its disk; the task is OK all the same."""


@answers(f"GET {AT}/config")
def shown(call: Call) -> object:
    """The configuration, with its digest."""
    return call.guest().shown(current=call.flag("current"))


@answers(f"PUT {AT}/config")
def update(call: Call) -> object:
    """Change options: all or nothing, but for a bridge that is not there, which PVE finds after it has written."""
    if not set(call.given) - {"node", "vmid", "digest"}:
        raise died("no options specified")
    with call.world.locks.config(call.vmid):
        guest = call.guest()
        guest.check_lock()
        guest.check_digest(call.text("digest"))
        new = {name: call.text(name) for name in call.given if name not in NO_OPTIONS}
        doomed = split_list(call.text("delete"))
        _check(call, guest, new, doomed)
        draft = copy.deepcopy(guest)
        options.change(call.world, draft, new, doomed, running=is_running(call))
        guest.config, guest.pending, guest.doomed = draft.config, draft.pending, draft.doomed
        call.world.containers.configure(call.vmid, guest.config)
        options.check_bridges(call.world, guest)
    return None


def _check(call: Call, guest: Guest, new: dict[str, str], doomed: list[str]) -> None:
    unprivileged = guest.config.get("unprivileged") == "1"
    check_change(call, guest.config, {}, doomed, unprivileged=unprivileged)
    known = methods()[f"PUT {AT}/config"]
    for name in doomed:
        if name in NO_OPTIONS or known.option(name) is None:
            raise bad_parameters({"delete": f"unknown option '{name}'"})
        if name in new:
            raise bad_parameters({"delete": f"you can't use '-{name}' and -delete {name}' at the same time"})
    check_change(call, guest.config, new, (), unprivileged=unprivileged)


@answers(f"PUT {AT}/resize")
def resize(call: Call) -> object:
    """Make a disk larger; a smaller one is refused at once."""
    _new_size(call)

    def work(task: Task) -> None:
        with call.world.locks.config(call.vmid):
            guest, option, size = _new_size(call)
            given = parts(option, guest.config[option])
            storage, volume = disks.volume_of(call.world, guest.node, given["volume"])
            before = volume.file_system or volume.size
            storage.resize(guest.node, volume, size)
            guest.config[option] = disks.mount_text(option, given, volume)
            task.say(f"Changing {given['volume']} to {size} bytes")
            if call.vmid in call.world.faults.keeps_file_systems:
                volume.file_system = before
                task.say(NOT_GROWN.format(disk=given["volume"].replace(":", "/")))

    return call.begin("resize", call.vmid, work)


def _new_size(call: Call) -> tuple[Guest, str, int]:
    guest = call.guest()
    guest.check_lock()
    option = call.text("disk")
    call.check(f"/vms/{call.vmid}", "VM.Config.Disk")
    guest.check_digest(call.text("digest"))
    if option not in guest.config:
        raise died("unable to parse volume ID ''")
    volid = parts(option, guest.config[option])["volume"]
    volume = disks.volume_of(call.world, guest.node, volid)[1]
    call.check(f"/storage/{disks.storage_of(volid)}", "Datastore.AllocateSpace")
    wanted = size_bytes(call.text("size").lstrip("+")) or 0
    size = volume.size + wanted if call.text("size").startswith("+") else wanted
    if size < volume.size:
        raise died("unable to shrink disk size")
    if size == volume.size:
        raise died("disk is already at specified size")
    return guest, option, size


@answers(f"GET {AT}/interfaces")
def interfaces(call: Call) -> object:
    """The addresses inside; nothing for a container that does not run."""
    guest = call.guest()
    if not is_running(call):
        return None
    nets = {name: parts(name, value) for name, value in sorted(guest.config.items()) if re.fullmatch(r"net\d+", name)}
    return [
        {
            "name": one.name,
            "hwaddr": one.mac,
            "hardware-address": one.mac,
            **{_family(address): address for address in reversed(one.addresses)},
            "ip-addresses": [
                {
                    "ip-address-type": _family(address),
                    "ip-address": address.partition("/")[0],
                    "prefix": int(address.partition("/")[2]),
                }
                for address in one.addresses
            ],
        }
        for one in call.world.containers.interfaces(call.vmid, nets)
    ]


def _family(address: str) -> str:
    return "inet6" if ":" in address else "inet"
