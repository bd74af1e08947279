"""Stop a container: cleanly, and by force only when it was asked and did not stop in its time."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Any

from provisioner.providers.proxmox import failures, tasks
from provisioner.providers.proxmox.failures import PveError, UnreachableError
from provisioner.providers.proxmox.guest import Guest
from provisioner.providers.proxmox.host import ProxmoxHost
from provisioner.values.state import Status

SETTLE_S = 60.0
"""How long a container that is highly available may take from "it was asked for" to "it is so"."""
POLL_S = 0.2
ATTEMPTS = 5
ASK_AGAIN_S = 2.0
"""Between them: a node may fail to begin the task, and then nobody has asked the container for anything."""
_KIND = "vzshutdown"
_DID_NOT = "did not stop"
_SLACK_S = 1.0


def stop(host: ProxmoxHost, guest: Guest, timeout_s: float) -> None:
    """Stop the container cleanly, by force when it has not stopped after ``timeout_s``; a stopped one is success.

    ``PveError`` when the node does not even begin, or when its task fails before that time: then nothing was forced.
    """
    if guest.status is Status.STOPPED or _shut_down(host, guest, max(1, int(timeout_s))):
        return
    act(host, guest, "stop", Status.STOPPED)


def act(host: ProxmoxHost, guest: Guest, verb: str, goal: Status, **form: Any) -> None:
    """Start or stop, and see that it has come about: for one that is highly available the task only asks for it."""
    try:
        host.task(lambda: host.client.post(*host.path(guest.vmid, "status", verb), **form), guest.name)
    except PveError as error:
        if error.lost:
            host.settle(guest.vmid, guest.name)
        if host.status(guest.vmid) is not goal:
            raise
    _await(host, guest, verb, goal)


def _await(host: ProxmoxHost, guest: Guest, verb: str, goal: Status) -> None:
    until = time.monotonic() + SETTLE_S
    while host.status(guest.vmid) is not goal:
        if time.monotonic() > until:
            raise PveError(f"the node has taken the order ({verb}), and after {SETTLE_S:.0f} s it is not {goal} yet")
        time.sleep(POLL_S)


def _shut_down(host: ProxmoxHost, guest: Guest, timeout_s: int) -> bool:
    """Whether the container stopped; False when it was asked to and its time ran out."""
    known = _tasks(host, guest)
    for left in reversed(range(ATTEMPTS)):
        try:
            upid = _asked(host, guest, timeout_s, known)
            return _ended(host, guest, upid, time.monotonic() + timeout_s)
        except PveError as error:
            if host.status(guest.vmid) is Status.STOPPED:
                return True
            begun = _tasks(host, guest) - known
            if not left or not _may_ask_again(error, has_begun=bool(begun)):
                raise
            if failures.is_transient(error):
                known |= begun
        # A node whose answer was lost may begin it a moment later: looked at before it is asked again.
        time.sleep(ASK_AGAIN_S)
    raise AssertionError  # the last attempt has raised or returned


def _asked(host: ProxmoxHost, guest: Guest, timeout_s: int, known: set[str]) -> str:
    """The task that asks it to stop: one that has begun although its answer was lost, or a new one."""
    begun = _tasks(host, guest) - known
    if begun:
        return begun.pop()
    return str(host.client.post(*host.path(guest.vmid, "status", "shutdown"), timeout=timeout_s))


def _ended(host: ProxmoxHost, guest: Guest, upid: str, deadline: float) -> bool:
    try:
        # A long drain may take longer than any other task.
        limit_s = max(tasks.TIMEOUT_S, deadline - time.monotonic() + _SLACK_S)
        host.client.task(upid, name=guest.name, on_progress=host.on_progress, timeout_s=limit_s)
    except UnreachableError:
        raise
    except PveError as error:
        is_out_of_time = time.monotonic() >= deadline - _SLACK_S
        if _DID_NOT in error.message or is_out_of_time:
            return host.status(guest.vmid) is Status.STOPPED
        raise
    _await(host, guest, "shutdown", Status.STOPPED)
    return True


def _may_ask_again(error: PveError, *, has_begun: bool) -> bool:
    """Whether the node failed at it, which may pass; what it refuses, or fails at in its task, it fails at again."""
    if failures.is_transient(error):
        return True
    if error.lost:
        return True
    return not has_begun and error.status >= HTTPStatus.INTERNAL_SERVER_ERROR


def _tasks(host: ProxmoxHost, guest: Guest) -> set[str]:
    """The container's shutdown tasks, running and ended."""
    node = host.client.node
    found = host.client.get("nodes", node, "tasks", vmid=guest.vmid, typefilter=_KIND, source="all", limit=50)
    return {str(task["upid"]) for task in found}
