"""Containers of an Incus: changed, looked at after a change, waited for, and adopted."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from http.client import HTTPException
from typing import Any

from provisioner.hosts.incus import api, execute, files
from provisioner.hosts.incus.api import Client, Endpoint, WireError
from provisioner.hosts.incus.translate import IMAGE, KIND, LAB, address_in, bytes_of, instance_of, is_root
from provisioner.inside import file_systems, system_start
from provisioner.inside.file_systems import Growth, Look, Run
from provisioner.inside.system_start import Start
from provisioner.values.errors import PreflightError, ProviderError, ReadyTimeoutError
from provisioner.values.state import Instance, InstanceKind, Status

Body = dict[str, Any]
Changed = Callable[[Body], Body]

# A change of a container that exists: all that is asked for, or nothing.

ATTEMPTS = 5
SPARE_BYTES = 64 * 2**20
"""What a container may write between the trial of a smaller disk and the change."""
_WRITABLE = ("architecture", "config", "description", "devices", "ephemeral", "profiles", "stateful")
_QUOTA = "quota"
_CPU = "limits.cpu"


def change(client: Client, name: str, changed: Changed, root: Mapping[str, str]) -> None:
    """Make the container what ``changed`` makes of its body; on failure it is as it was, ``WireError`` says why.

    ``root`` is the profile's root disk.
    """
    found = client.get("instances", name)
    before = _body(found)
    after = changed(deepcopy(before))
    _require_disk(client, name, _size(before, root), _size(after, root), root["pool"])
    if found["status"] == "Stopped" or before["config"] == after["config"]:
        _put(client, name, changed)
        return
    reached = before
    try:
        for step in _steps(before, after):
            if step != reached:
                _put(client, name, partial(_with_changes, before=before, after=step))
                reached = step
    except WireError:
        _put(client, name, partial(_with_changes, before=reached, after=before))
        raise


def _steps(before: Body, after: Body) -> Iterator[Body]:
    """The bodies that a running container is given one after the other.

    A limit that it cannot keep fails after its devices were changed, and Incus forgets about them: so these go first,
    and can be taken back. Incus spreads containers over processors when it hears of ``limits.cpu``, which may be
    before it has written it down, and then goes by the old one: so that goes last, with nothing to wait for.
    """
    yield {**before, "devices": after["devices"]}
    config = {key: value for key, value in after["config"].items() if key != _CPU}
    if _CPU in before["config"]:
        config[_CPU] = before["config"][_CPU]
    yield {**after, "config": config}
    yield after


def _with_changes(body: Body, *, before: Body, after: Body) -> Body:
    """``body`` with what differs between the two others, and nothing else."""
    changed = dict(body)
    for part, value in after.items():
        if part in ("config", "devices"):
            changed[part] = _mapping_with_changes(body[part], before=before[part], after=value)
        elif before[part] != value:
            changed[part] = value
    return changed


def _mapping_with_changes(
    values: Mapping[str, Any], *, before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, Any]:
    """``values`` without the keys that are gone in ``after``, and with those that are new or different there."""
    changed = dict(values)
    for key in before.keys() - after.keys():
        changed.pop(key, None)
    changed |= {key: value for key, value in after.items() if before.get(key) != value}
    return changed


def _body(found: Mapping[str, Any]) -> Body:
    return {key: found[key] for key in _WRITABLE}


def _put(client: Client, name: str, changed: Changed) -> None:
    """One request; whoever changes the container at the same time loses nothing."""
    for attempt in range(1, ATTEMPTS + 1):
        found, tag = client.get_tagged("instances", name)
        before = _body(found)
        after = changed(deepcopy(before))
        if after == before:
            return
        try:
            client.change("put", "instances", name, body=after, tag=tag)
        except WireError as error:
            if error.status == HTTPStatus.PRECONDITION_FAILED and attempt < ATTEMPTS:
                continue
            _plug_again(client, name, before, after, error)
            raise
        return


def _plug_again(client: Client, name: str, before: Body, after: Body, error: WireError) -> None:
    """Plug again what was unplugged before another device failed.

    Incus keeps its old list then, so that writing this list is no change to it: the container gets a list without the
    changed devices in between. Its root disk cannot be left out and goes by way of its new size.
    """
    old, new = before["devices"], after["devices"]
    roots = old if 'device "root"' in str(error) else new
    between = {key: device for key, device in old.items() if new.get(key) == device and not is_root(device)}
    between |= {key: device for key, device in roots.items() if is_root(device)}
    if between == old:
        return
    try:
        for devices in (between, old):
            config = client.get("instances", name)["config"]
            client.change("put", "instances", name, body={**before, "config": config, "devices": devices})
    except WireError as second:
        words = f"{error}\nWhat it had could not be plugged in again ({second}). Restart it: incus restart {name}"
        raise WireError(second.status, words) from error


def _size(body: Body, root: Mapping[str, str]) -> int | None:
    """The size of its own disk; None: as large as the pool."""
    for device in body["devices"].values():
        if is_root(device):
            return bytes_of(device.get("size"))
    return bytes_of(root.get("size"))


def _require_disk(client: Client, name: str, before: int | None, after: int | None, pool: str) -> None:
    """Refuse a disk that is smaller than what is in it, where the storage would take it.

    btrfs sets such a limit, fails after it, and then neither writes nor takes any other limit. What counts against
    the limit is not known from its API (the image does), so a copy, which costs next to nothing there, is tried.
    """
    shrinks = after is not None and (before is None or after < before)
    if after is None or not shrinks or client.get("storage-pools", pool)["driver"] != "btrfs":
        return
    trial = f"provision-trial-{sha256(name.encode()).hexdigest()[:16]}"
    _delete_trial(client, trial)
    disk = {"type": "disk", "path": "/", "pool": pool, "size": str(max(after - SPARE_BYTES, 1))}
    source = {"type": "copy", "source": name, "instance_only": True}
    body = {"name": trial, "type": "container", "source": source, "devices": {_root_name(client, name): disk}}
    try:
        # The kind says that it may go: the next plan deletes one that an interrupted run has left.
        client.change("post", "instances", body=body | {"config": {KIND: str(InstanceKind.BUILDER)}})
    except WireError as error:
        if _QUOTA not in str(error).lower():
            raise
        raise ProviderError(
            f"Unable to change container {name}: there is more on its disk than {after} bytes hold",
            details=str(error),
            resolution="Give it a larger `disk`, or delete files in it first.",
        ) from error
    finally:
        _delete_trial(client, trial)


def _root_name(client: Client, name: str) -> str:
    devices: Mapping[str, Mapping[str, str]] = client.get("instances", name)["expanded_devices"]
    return next(key for key, device in devices.items() if is_root(device))


def _delete_trial(client: Client, trial: str) -> None:
    found = client.find("instances", trial)
    if found is not None and found["config"].get(KIND) == InstanceKind.BUILDER and LAB in found["config"]:
        client.change("delete", "instances", trial)


# The file system of a container, which has to grow with its disk. Where the storage gives quotas (btrfs, ZFS) there is
# nothing to grow, and on btrfs `df` shows the whole pool. On LVM and Ceph each container has a file system of its own.

ROOT = "/"
_GROW_BY_HAND = (
    "The disk itself is large enough, so up does not try again. On the host: incus stop {name}; grow the file system "
    "on its volume in pool {pool} (resize2fs for ext4; XFS grows mounted: xfs_growfs); incus start {name}"
)


@contextmanager
def watched_growth(
    before: Instance, wanted: Instance, run: Run, say: Callable[[str], None], pool: str
) -> Iterator[None]:
    """Around a change: ``ProviderError`` when the disk grew and the file system on it surely did not.

    ``say`` is told what could not be read; without a growth nothing is looked at.
    """
    if before.disk is None or wanted.disk is None or wanted.disk <= before.disk:
        yield
        return
    growth = Growth(ROOT, before.disk, wanted.disk)
    is_running = before.status is Status.RUNNING
    first = file_systems.look(run, [ROOT]) if is_running else Look(why="the container does not run")
    yield
    second = file_systems.look(run, [ROOT]) if is_running else first
    if file_systems.stayed_small(growth, first, second):
        raise file_systems.not_grown(wanted.name, growth, second, "", _GROW_BY_HAND.format(name=wanted.name, pool=pool))
    why = first.why or second.why
    if why:
        say(growth.unread(why))


# The processors of a running container, as many as Incus has written down. Incus spreads its containers when it hears
# of a new number, which may be before it has written that down; it then goes by the old one, and nothing has it look
# again (lxc/incus issue 1936).

COUNT_PROCESSORS = ["nproc"]
SPREAD_S = 3.0
"""So long Incus has to spread its containers; it takes some tenths of a second."""
COUNT_POLL_S = 0.1
ROUNDS = 5


def keep_processors(
    before: Instance, wanted: Instance, run: Run, change: Callable[[int | None], None], host_has: int
) -> None:
    """After a change: have it made again until it counts; ``ProviderError`` where it never does.

    ``change`` makes another number the container's. One that cannot be asked for its processors is left as it is.
    """
    if before.status is not Status.RUNNING or wanted.cpu is None or wanted.cpu == before.cpu:
        return
    number = min(wanted.cpu, host_has)
    counted = _counted(run, number)
    for _ in range(ROUNDS - 1):
        if counted in (number, None):
            return
        change(before.cpu)
        change(wanted.cpu)
        counted = _counted(run, number)
    if counted not in (number, None):
        raise ProviderError(
            f"Unable to give container {wanted.name} {number} processors",
            details=f"Incus has written that down, and the container still has {counted}.",
            resolution=f"Restart it: incus restart {wanted.name}",
        )


def _counted(run: Run, number: int) -> int | None:
    """How many processors the container has, as soon as that is ``number``; None where it does not say."""
    deadline = time.monotonic() + SPREAD_S
    while True:
        done = run(COUNT_PROCESSORS)
        said = done.stdout.decode(errors="replace").strip()
        if done.returncode != 0 or not said.isdecimal():
            return None
        if int(said) == number or time.monotonic() > deadline:
            return int(said)
        time.sleep(COUNT_POLL_S)


# The start of a container, and the log of one that failed: Incus says only that it did, and LXC has written the reason
# there.

RUNS_STILL = "already running"
"""In what Incus says of a container whose stop has ended a moment before its monitor has."""
BEGIN_S, BEGIN_POLL_S = 10.0, 0.2

STARTER = "forkstart"
"""The program of Incus that starts a container; its words are its arguments and an exit status."""
START_LOG = "lxc.log"
LOG_ERROR = " ERROR "
MOST_LINES = 5


def begin(client: Client, endpoint: Endpoint, name: str, action: str) -> None:
    """Start or resume a container; one that Incus takes for a running one although it has stopped is asked again.

    One that runs after ``BEGIN_S`` was started by somebody else, which is success.
    """
    deadline = time.monotonic() + BEGIN_S
    while True:
        try:
            client.change("put", "instances", name, "state", body={"action": action})
        except WireError as error:
            is_late = time.monotonic() > deadline
            if RUNS_STILL not in str(error) or (is_late and client.get("instances", name)["status"] != "Running"):
                raise with_start_log(endpoint, name, error) from error
            if is_late:
                return
            time.sleep(BEGIN_POLL_S)
        else:
            return


def with_start_log(endpoint: Endpoint, name: str, error: WireError) -> WireError:
    """The error of a start with the errors that LXC wrote first; as it is where Incus says why, or the log does not."""
    if STARTER not in str(error):
        return error
    try:
        text = files.read_log(endpoint, name, START_LOG).decode(errors="replace")
    except (WireError, OSError, HTTPException):
        return error  # that it did not start is what counts
    lines = [line.partition(LOG_ERROR)[2].strip() for line in text.splitlines() if LOG_ERROR in line]
    return WireError(error.status, "\n".join([str(error), *lines[:MOST_LINES]]))


# The wait until a container has an address and its system has started, which tells a slow one from a broken one.

READY_POLL_S = 0.1
CONSOLE_LINES = 40
_NOT_YET = Start("not asked yet")


def wait_until_ready(client: Client, name: str, timeout_s: float, say: Callable[[str], None]) -> None:
    """Return when ``name`` has an IPv4 address and systemd has started everything; ``ReadyTimeoutError``, else.

    ``say`` is told what a start waits for that takes long.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        state = client.get("instances", name, "state")
        if state["status"] != "Running":
            raise _not_ready(client, name, f"It stopped while starting: its state is {state['status']}.", "")
        address = address_in(state)
        # Asked only once it has an address: `is-system-running` takes 30 ms of CPU, the question above 2 ms.
        system = _system(client.endpoint, name, deadline) if address else _NOT_YET
        if system.is_over and address:
            return
        if time.monotonic() >= deadline:
            raise _timeout(client, name, timeout_s, address, system.text)
        if system.jobs:
            say(f"its system is still {system.text}")
        time.sleep(READY_POLL_S)


def _system(endpoint: Endpoint, name: str, deadline: float) -> Start:
    """What systemd says of itself, once it has started or was watched for a while; a system without it has started."""
    command = system_start.command(deadline - time.monotonic())
    try:
        done = execute.run(endpoint, name, command, timeout_s=system_start.COMMAND_S)
    except execute.ExecutionTimeoutError:
        return Start("not answering")
    return system_start.start_of(done) or Start("running")


def _timeout(client: Client, name: str, timeout_s: float, address: str | None, system: str) -> ReadyTimeoutError:
    if address is None:
        what = f"After {timeout_s:.0f} s it is running but has no IPv4 address on eth0."
        resolution = "Does its bridge give addresses by DHCP? See: incus network list; incus network show <bridge>"
        return _not_ready(client, name, what, resolution)
    what = f"After {timeout_s:.0f} s it has the address {address}, and its system is still: {system}"
    return _not_ready(client, name, what, f"See: incus exec {name} -- systemctl list-jobs")


def _not_ready(client: Client, name: str, what: str, resolution: str) -> ReadyTimeoutError:
    details = f"{what}\nThe end of its console:\n{_console(client, name)}"
    return ReadyTimeoutError(f"Unable to start container {name}", details=details, resolution=resolution)


def _console(client: Client, name: str) -> str:
    with closing(api.connection_to(client.endpoint)) as connection:
        connection.request("GET", api.path_of("instances", name, "console"))
        response = connection.getresponse()
        text = api.whole(response).decode(errors="replace")
    if response.status != HTTPStatus.OK:
        return f"(none: {text.strip()})"
    return "\n".join(text.splitlines()[-CONSOLE_LINES:]) or "(empty)"


# Containers that provision did not make: which can become a lab's, of what image they are, how they are marked.

BASE_IMAGE = "volatile.base_image"
"""Where Incus keeps the fingerprint of the image that a container was made of."""


def adoptable(found: Iterable[Mapping[str, Any]], names: Collection[str], host: str) -> dict[str, Instance]:
    """Those of ``names`` among what Incus lists that are containers without any lab's mark."""
    containers: dict[str, Instance] = {}
    for entry in found:
        name = entry["name"]
        if name in names and entry["type"] == "container" and not entry["config"].get(LAB):
            containers[name] = instance_of(entry, host)
    return containers


def described_unmarked(client: Client, found: Mapping[str, Any], host: str) -> Instance:
    """The container as it is; of one without a mark, the image is the alias that its own image has here, if any."""
    instance = instance_of(found, host)
    if instance.image:
        return instance
    fingerprint = found["config"].get(BASE_IMAGE)
    aliases = client.get("images", "aliases", recursion="1")
    names = sorted(alias["name"] for alias in aliases if alias["target"] == fingerprint)
    return replace(instance, image=next(iter(names), ""))


def with_mark(body: Mapping[str, Any], instance: Instance) -> dict[str, Any]:
    """The body of an existing container with the lab's mark; ``ProviderError`` when it bears another lab's."""
    owner = body["config"].get(LAB)
    if owner not in (None, "", instance.lab):
        raise ProviderError(
            f"Unable to adopt container {instance.name}",
            details=f"It bears the mark of lab {owner}.",
            resolution=f"Choose another name in the file, or have lab {owner} give it up.",
        )
    if owner == instance.lab:
        return dict(body)
    mark = {LAB: instance.lab, KIND: str(InstanceKind.SERVING), IMAGE: instance.image}
    return {**body, "config": {**body["config"], **mark}}


def adoption_notes(found: Mapping[str, Any]) -> tuple[str, ...]:
    """What should be known of a container that is to be adopted; ``PreflightError`` for one that cannot be adopted."""
    name = found["name"]
    if found.get("ephemeral"):
        raise PreflightError(
            f"Unable to adopt container {name}: Incus deletes it when it stops",
            details="It is ephemeral.",
            resolution=f"Run: incus config edit {name}   and write `ephemeral: false`.",
        )
    if found["expanded_config"].get("security.privileged") != "true":
        return ()
    return (f"Container {name} is privileged: root in it is root of its host. What provision makes is not.",)
