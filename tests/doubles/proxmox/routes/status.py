"""``/nodes/{node}/lxc/{vmid}/status``: how a container is; start, stop, shutdown."""

from __future__ import annotations

from tests.doubles.proxmox import options
from tests.doubles.proxmox.call import Call, answers
from tests.doubles.proxmox.errors import ApiError, bad_parameters, died
from tests.doubles.proxmox.guest import Guest, parts
from tests.doubles.proxmox.state import state
from tests.doubles.proxmox.tasks import Task
from tests.doubles.proxmox.world import World

OLD_SYSTEMD = 241
AT = "/nodes/{node}/lxc/{vmid}/status"


@answers(f"GET {AT}/current")
def current(call: Call) -> object:
    """The state of a container, now."""
    found = state(call.world.containers, call.guest())
    return {**found, "ha": {"managed": int(call.vmid in call.world.ha)}}


def is_running(call: Call) -> bool:
    """Whether the container runs; one that does not exist does not."""
    return call.world.containers.running_s(call.vmid) is not None


def check_running(call: Call) -> None:
    """Refuse what only a running container can do."""
    if not is_running(call):
        raise died(f"CT {call.vmid} not running")


def _check_skiplock(call: Call) -> None:
    if call.flag("skiplock") and not call.is_root:
        raise bad_parameters({"skiplock": "Only root may use this option."})


@answers(f"POST {AT}/start")
def start(call: Call) -> object:
    """Start: whether there is such a container, and whether it is locked, is found out by the task."""
    _check_skiplock(call)
    if is_running(call):
        raise died(f"CT {call.vmid} already running")
    call.world.check_quorum()

    def work(task: Task) -> None:
        with call.world.locks.config(call.vmid):
            guest = call.guest()
            if guest.config.get("template") == "1":
                raise died("you can't start a CT if it's a template")
            if not call.flag("skiplock") and guest.config.get("lock") != "mounted":
                guest.check_lock()
            boot(call.world, guest, task)

    return call.begin("vzstart", call.vmid, work)


def boot(world: World, guest: Guest, task: Task) -> None:
    """What a start does; what the host has not makes it fail, with the reason in the log."""
    options.apply_pending(world, guest)
    try:
        options.check_bridges(world, guest)
        options.check_devices(world, guest)
    except ApiError as error:
        task.say(error.message)
        raise died(f"startup for container '{guest.vmid}' failed") from error
    warn_of_systemd(guest, task)
    world.containers.start(guest.vmid, guest.config)


def warn_of_systemd(guest: Guest, task: Task) -> None:
    """A systemd of today wants nesting; without it PVE warns, at create and at start."""
    nesting = parts("features", guest.config.get("features", "")).get("nesting") == "1"
    if guest.config.get("unprivileged") == "1" and not nesting and guest.template.systemd > OLD_SYSTEMD:
        task.warn(f"Systemd {guest.template.systemd} detected. You may need to enable nesting.")


@answers(f"POST {AT}/stop")
def stop(call: Call) -> object:
    """Kill."""
    _check_skiplock(call)
    check_running(call)

    def work(task: Task) -> None:
        del task
        with call.world.locks.config(call.vmid):
            guest = call.guest()
            if not call.flag("skiplock") and guest.config.get("lock") != "mounted":
                guest.check_lock()
            call.world.containers.stop(call.vmid)

    return call.begin("vzstop", call.vmid, work)


@answers(f"POST {AT}/shutdown")
def shutdown(call: Call) -> object:
    """Ask it to end; one that does not is killed with ``forceStop``, else the task fails after its time."""
    check_running(call)

    def work(task: Task) -> None:
        with call.world.locks.config(call.vmid):
            call.guest().check_lock()
            _end(call, task, call.number("timeout", 60), kill=call.flag("forceStop"))

    return call.begin("vzshutdown", call.vmid, work)


def _end(call: Call, task: Task, timeout_s: int, *, kill: bool) -> None:
    if call.world.containers.shutdown(call.vmid, timeout_s):
        return
    task.pause(timeout_s)
    if not kill:
        task.say(f"command 'lxc-stop -n {call.vmid} --nokill --timeout {timeout_s}' failed: exit code 1")
        raise died("container did not stop")
    call.world.containers.stop(call.vmid)
