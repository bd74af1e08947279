"""``/nodes/{node}/lxc``: list, create and destroy containers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.doubles.proxmox import disks, options
from tests.doubles.proxmox.call import Call, answers
from tests.doubles.proxmox.errors import ApiError, bad_parameters, died, forbidden
from tests.doubles.proxmox.guest import NEW_DISK, VOLUME, Config, Guest, volumes
from tests.doubles.proxmox.guests import Template
from tests.doubles.proxmox.privileges import check_change
from tests.doubles.proxmox.routes.status import is_running, start, warn_of_systemd
from tests.doubles.proxmox.state import state
from tests.doubles.proxmox.tasks import Task

AT = "/nodes/{node}/lxc"
DEFAULT_ROOT_GIB = 4
# parameters of a create that are no options of the container
NO_OPTIONS = {
    *("bwlimit", "force", "ha-managed", "ignore-unpack-errors", "node", "ostemplate", "password", "pool", "restore"),
    *("ssh-public-keys", "start", "storage", "unique", "unprivileged", "vmid"),
}
UNPACK = (
    "lxc-usernsexec -m u:0:100000:65536 -m g:0:100000:65536 -- tar xpf - --totals --one-file-system -p --sparse "
    "--numeric-owner --acls --xattrs -C /var/lib/lxc/{vmid}/rootfs"
)


@answers(f"GET {AT}")
def listed(call: Call) -> object:
    """The node's containers that the caller may see, as they are now."""
    world = call.world
    here = [guest for guest in list(world.guests.values()) if guest.node == call.node.name]
    return [state(world.containers, guest) for guest in here if call.may(f"/vms/{guest.vmid}", "VM.Audit")]


@dataclass(frozen=True)
class Wanted:
    """A container that is to be made: options, and the mount points that need disks."""

    config: Config
    mounts: Config
    template: str
    unprivileged: bool


@answers(f"POST {AT}")
def create(call: Call) -> object:
    """Create: what is refused at once is refused; the rest is found out by the task, while the number is taken."""
    world = call.world
    world.check_quorum()
    if call.flag("restore"):
        raise died("the double restores no backups")
    unprivileged = call.text("unprivileged", "1") == "1"
    if not unprivileged:
        call.check("/", "Sys.Modify")
    world.check_unused(call.vmid)
    pool = call.text("pool")
    if pool:
        world.check_pool(pool)
    if not (call.may(f"/vms/{call.vmid}", "VM.Allocate") or (pool and call.may(f"/pool/{pool}", "VM.Allocate"))):
        raise forbidden()
    wanted = _wanted(call, unprivileged=unprivileged)
    stub = Guest(call.vmid, call.node.name, {"lock": "create"})
    with world.lock:
        world.check_unused(call.vmid)
        world.guests[call.vmid] = stub
    return call.begin("vzcreate", call.vmid, lambda task: _create(call, stub, wanted, task))


def _wanted(call: Call, *, unprivileged: bool) -> Wanted:
    given = {name: call.text(name) for name in call.given if name not in NO_OPTIONS}
    check_change(call, {}, given, (), unprivileged=unprivileged)
    _check_template_access(call)
    mounts = _mounts(call, {name: value for name, value in given.items() if VOLUME.fullmatch(name)})
    plain = {name: v for name, v in given.items() if not re.fullmatch(r"rootfs|(mp|unused)\d+", name)}
    draft = Guest(call.vmid, call.node.name)
    options.change(call.world, draft, plain, (), running=False)
    return Wanted(draft.config, mounts, call.text("ostemplate"), unprivileged)


def _check_template_access(call: Call) -> None:
    volid = call.text("ostemplate")
    storage, colon, _ = volid.partition(":")
    if not colon:
        if not call.is_root:
            raise died("Only root can pass arbitrary filesystem paths.")
        return
    call.world.storage(storage, call.node.name)
    if not re.fullmatch(r"[^:]+:vztmpl/[^/]+", volid):
        raise died(f"unable to use volume {volid} - content type needs to be 'vztmpl'")
    if not call.may(f"/storage/{storage}", "Datastore.Allocate"):
        call.check_any(f"/storage/{storage}", "Datastore.AllocateSpace", "Datastore.Audit")


def _mounts(call: Call, given: Config) -> Config:
    """The mount points: a bare number is a size on the default storage; without any, a root of 4 GiB."""
    storage = call.text("storage", "local")
    found = {
        name: f"{storage}:{value}" if re.fullmatch(r"\d+(\.\d+)?", value) else value for name, value in given.items()
    }
    if found and "rootfs" not in found:
        raise died("mount points configured, but 'rootfs' not set - aborting")
    if not found:
        _check_storage(call, storage)
    for _, parts in volumes(found):
        if parts["kind"] == "volume":
            _check_storage(call, disks.storage_of(parts["volume"]))
        elif not call.is_root:
            raise died("Only root can pass arbitrary filesystem paths.")
    return found or {"rootfs": f"{storage}:{DEFAULT_ROOT_GIB}"}


def _check_storage(call: Call, name: str) -> None:
    if "rootdir" not in call.world.storage(name, call.node.name).content:
        raise bad_parameters({"storage": f"storage '{name}' does not support container directories"})
    call.check(f"/storage/{name}", "Datastore.AllocateSpace")


def _create(call: Call, stub: Guest, wanted: Wanted, task: Task) -> None:
    world, node, vmid = call.world, call.node.name, call.vmid
    with world.locks.config(vmid):
        made: Config = {}
        try:
            made = disks.make(world, node, vmid, wanted.mounts, task)
            template = _template(call, wanted.template)
            _unpack(call, template, {**wanted.config, **made}, task)
        except ApiError as error:
            disks.free(world, node, [d["volume"] for _, d in volumes(made) if not NEW_DISK.fullmatch(d["volume"])])
            world.containers.remove(vmid)
            world.remove_guest(vmid)
            raise died(f"unable to create CT {vmid} - {error.message.strip()}") from error
        with world.lock:
            stub.config = _first_config(vmid, wanted, template, made)
            stub.template = template
            if call.text("pool"):
                world.pools[call.text("pool")].vms.add(vmid)
        warn_of_systemd(stub, task)
    if call.flag("start"):
        start(call)


def _first_config(vmid: int, wanted: Wanted, template: Template, made: Config) -> Config:
    basis = {"arch": "amd64", "ostype": template.ostype, "hostname": f"CT{vmid}", "memory": "512", "swap": "512"}
    return {**basis, **wanted.config, **made, **({"unprivileged": "1"} if wanted.unprivileged else {})}


def _template(call: Call, volid: str) -> Template:
    if ":" not in volid:
        raise died(f"can't find file '{volid}'")
    found = disks.volume_of(call.world, call.node.name, volid)[1].template
    if found is None:
        raise died(f"volume '{volid}' does not exist")
    return found


def _unpack(call: Call, template: Template, config: Config, task: Task) -> None:
    task.say(f"extracting archive '{call.text('ostemplate')}'")
    if template.corrupt:
        task.say("tar: Unexpected EOF in archive\ntar: Error is not recoverable: exiting now")
        raise died(f"command '{UNPACK.format(vmid=call.vmid)}' failed: exit code 2")
    call.world.containers.create(call.vmid, template, config)


@answers(f"DELETE {AT}/{{vmid}}")
def destroy(call: Call) -> object:
    """Destroy: refused at once when it is protected, locked, running or in HA."""
    _check_destroy(call)

    def work(task: Task) -> None:
        world = call.world
        with world.locks.config(call.vmid):
            guest = _check_destroy(call)
            if is_running(call):
                task.say(f"forced to stop CT {call.vmid} before destroying!")
                world.containers.stop(call.vmid)
            _free_disks(call, guest, task)
            world.containers.remove(call.vmid)
            if call.flag("purge"):
                task.say(f"purging CT {call.vmid} from related configurations..")
                world.ha.discard(call.vmid)
                for job in world.backup_jobs.values():
                    job.discard(call.vmid)
            world.remove_guest(call.vmid)

    return call.begin("vzdestroy", call.vmid, work)


def _free_disks(call: Call, guest: Guest, task: Task) -> None:
    """What the configuration names, now or after the next start; and by a flag whatever else bears the number.

    So ``destroy_lxc_container`` in pve-container's ``LXC.pm``: a volume that only a snapshot names stays.
    """
    named = [*disks.owned(guest.config), *disks.owned(guest.pending)]
    foreign = [volid for volid in named if disks.owner_of(call.world, guest.node, volid) not in (0, guest.vmid)]
    for volid in foreign:
        task.say(f"ignore deletion of '{volid}', CT {guest.vmid} isn't the owner!")
    disks.free(call.world, guest.node, [volid for volid in named if volid not in foreign])
    if call.flag("destroy-unreferenced-disks"):
        disks.free(call.world, guest.node, disks.under_number(call.world, guest.node, guest.vmid))


def _check_destroy(call: Call) -> Guest:
    guest = call.guest()
    guest.check_protection(f"can't remove CT {call.vmid}")
    guest.check_lock()
    if call.vmid in call.world.ha and not call.flag("purge"):
        raise died(f"unable to remove CT {call.vmid} - used in HA resources and purge parameter not set.")
    if is_running(call) and not call.flag("force"):
        raise died(f"unable to destroy CT {call.vmid} - container is running")
    return guest
