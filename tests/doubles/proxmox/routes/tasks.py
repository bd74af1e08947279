"""``/nodes/{node}/tasks``: how tasks go, and what they said."""

from __future__ import annotations

from tests.doubles.proxmox.call import Call, Counted, answers
from tests.doubles.proxmox.errors import bad_parameters
from tests.doubles.proxmox.tasks import UPID, Task

AT = "/nodes/{node}/tasks"

Entry = dict[str, object]


def _owner(task: Task) -> Entry:
    """The user of a task; a token is told apart from its user."""
    user, _, token = task.user.partition("!")
    return {"user": user, "tokenid": token} if token else {"user": user}


def entry(task: Task) -> Entry:
    """A task as lists have it."""
    found: Entry = {
        "upid": task.upid,
        "node": task.node,
        "pid": task.pid,
        "pstart": task.pstart,
        "starttime": task.starttime,
        "type": task.kind,
        "id": task.id,
        **_owner(task),
    }
    if task.done.is_set():
        found.update(endtime=task.endtime, status=task.exitstatus)
    return found


def _task(call: Call, privilege: str) -> Task:
    """The task that is asked about, if it is the caller's or they may see those of others."""
    upid = call.text("upid")
    if not UPID.fullmatch(upid):
        raise bad_parameters({"upid": "unable to parse worker upid"})
    task = call.world.tasks.all.get(upid)
    if task is None or task.node != call.node.name:
        raise bad_parameters({"upid": "no such task"})
    if call.user not in (task.user, task.user.partition("!")[0]):
        call.check(f"/nodes/{call.node.name}", privilege)
    return task


@answers(f"GET {AT}")
def listed(call: Call) -> object:
    """The node's tasks, the newest first."""
    everyone = call.may(f"/nodes/{call.node.name}", "Sys.Audit")
    found = [
        entry(task)
        for task in reversed(list(call.world.tasks.all.values()))
        if task.node == call.node.name and (everyone or task.user == call.user) and _wanted(call, task)
    ]
    start = call.number("start")
    return Counted(list(found[start : start + call.number("limit", 50)]), len(found))


def _wanted(call: Call, task: Task) -> bool:
    source = call.text("source", "archive")
    done = task.done.is_set()
    if done != (source == "archive") and source != "all":
        return False
    if call.flag("errors") and (not done or task.is_good):
        return False
    filters = {"typefilter": task.kind, "vmid": task.id, "userfilter": task.user}
    return all(call.text(name, value) == value for name, value in filters.items())


@answers(f"GET {AT}/{{upid}}/status")
def status(call: Call) -> object:
    """Whether it runs, and how it ended."""
    task = _task(call, "Sys.Audit")
    found = {name: value for name, value in entry(task).items() if name not in ("endtime", "status")}
    if task.done.is_set():
        return {**found, "status": "stopped", "exitstatus": task.exitstatus}
    return {**found, "status": "running"}


@answers(f"GET {AT}/{{upid}}/log")
def log(call: Call) -> object:
    """What it said, fifty lines unless asked for more; its last line is how it ended."""
    lines = list(_task(call, "Sys.Audit").lines)
    start = call.number("start")
    part = lines[start : start + (call.number("limit", 50) or len(lines))]
    shown: list[object] = [{"n": number, "t": text} for number, text in enumerate(part, start + 1)]
    return Counted(shown or [{"n": 1, "t": "no content"}], len(lines) or 1)


@answers(f"DELETE {AT}/{{upid}}")
def stop(call: Call) -> object:
    """Interrupt it."""
    _task(call, "Sys.Modify").interrupted.set()
    return None
