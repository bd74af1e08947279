"""Containers that exist: change all that is asked for, or nothing; adopt, start and stop them, and await them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any

from provisioner.gpus.choice import FILE, numbers_in
from provisioner.hosts.proxmox import api, execute, failures, marks, rights, translate, volumes
from provisioner.hosts.proxmox.failures import PveError, UnreachableError
from provisioner.hosts.proxmox.guest import CARD, Guest, address_in
from provisioner.hosts.proxmox.host import ProxmoxHost
from provisioner.hosts.proxmox.marks import Mark
from provisioner.hosts.proxmox.translate import (
    MIB,
    ROOT_SLOT,
    Options,
    bytes_of,
    instance_of,
    mebibytes,
    options_for,
    property_parts,
)
from provisioner.inside import file_systems, system_start
from provisioner.inside.file_systems import Growth, Look
from provisioner.inside.system_start import Start
from provisioner.values.errors import ProviderError, ReadyTimeoutError, UnavailableError
from provisioner.values.plain_data import Foreign
from provisioner.values.state import Instance, InstanceKind, Status


def require_no_publication(instance: Instance) -> None:
    """Refuse to publish ports: the node passes none on."""
    if any(device.kind == "publish" for device in instance.devices):
        raise ProviderError(
            f"Unable to publish ports of container {instance.name}",
            details="A container on Proxmox has an address of its own: nothing has to be published.",
        )


def update_container(host: ProxmoxHost, wanted: Instance) -> int:
    """Make the container what ``wanted`` says; its VMID. When something fails what was written is put back."""
    require_no_publication(wanted)
    room = volumes.copy_sizes_for(host, wanted)
    guest = _container_to_change(host, wanted)
    wanted = with_group_numbers(host, guest, wanted)
    try:
        _change_container(host, guest, wanted, room)
    except PveError as error:
        if not is_modified(error):
            raise
        # Somebody has written since it was read: decided anew, once.
        _change_container(host, _container_to_change(host, wanted), wanted, room)
    volumes.fill_copies(host, _container_to_change(host, wanted))
    volumes.delete_unused_copies(host, guest.vmid)
    return guest.vmid


def _container_to_change(host: ProxmoxHost, wanted: Instance) -> Guest:
    guest = host.existing(wanted, "change")
    return replace(guest, pool=host.pools().get(guest.vmid, ""))


def _change_container(host: ProxmoxHost, guest: Guest, wanted: Instance, room: Mapping[str, int]) -> None:
    draft = _draft(host, guest, wanted, room)
    guest = _unprotected(host, guest, draft)
    try:
        write_draft(host, guest, draft)
    except (PveError, ProviderError) as error:
        if isinstance(error, PveError) and is_modified(error):
            raise  # before anything was written
        raise undo_change(host, guest, draft, error) from error


def _draft(host: ProxmoxHost, guest: Guest, wanted: Instance, room: Mapping[str, int]) -> Draft:
    # What a running container has until its next start is not in the configuration that says how it will be.
    busy = host.client.get(*host.path(guest.vmid, "config"), current=True)
    layout = translate.mount_layout(guest, wanted, room, guest.storage, busy)
    unread = guest.ungrown
    sizes = {slot: disk_size(guest, slot) for slot in unread.keys() & guest.config.keys()} | layout.sizes
    disk = disk_size(guest, ROOT_SLOT)
    wish = disk if wanted.disk is None else mebibytes(wanted.disk) * MIB
    if wish < disk:
        raise ProviderError(
            f"Unable to change container {guest.name}: its disk cannot become smaller",
            details=f"It has {disk // MIB} MiB, and the file says {wish // MIB} MiB.",
            resolution=f"Write disk: {disk // MIB}MiB or more; or make it anew: --replace {guest.name}",
        )
    if wish > disk:
        sizes[ROOT_SLOT] = wish
    if host.shell is not None:
        layout.ungrown = {slot: unread.get(slot, disk_size(guest, slot)) for slot in sizes}
    pool = wanted.settings.get("pool")
    return Draft(options_for(wanted, guest, layout), sizes, None if pool == guest.pool else pool)


def _unprotected(host: ProxmoxHost, guest: Guest, draft: Draft) -> Guest:
    """The container, its protection lifted where the file says so: it forbids to change disks in the same request."""
    disks = sorted(name for name in draft.options if name.startswith("mp"))
    if guest.config.get("protection") != "1" or not disks:
        return guest
    if draft.options.get("protection", "1") is not None:
        raise ProviderError(
            f"Unable to change container {guest.name}: it is protected",
            details=f"Its disks ({', '.join(disks)}) can be neither added nor detached while it is.",
            resolution="Write protection: false, run up, and protect it again; nothing lifts it by itself.",
        )
    host.client.put(*host.path(guest.vmid, "config"), delete="protection", digest=guest.digest)
    return replace(host.config(guest.vmid), pool=guest.pool)


# The requests of a change, in an order in which they can be taken back.

_MODIFIED_MEANWHILE = "detected modified configuration"


@dataclass(frozen=True, slots=True)
class Draft:
    """What is to be done to a container: ``options`` (None: deleted), ``sizes`` of disks, the ``pool`` it goes to."""

    options: Options
    sizes: Mapping[str, int] = field(default_factory=dict)
    pool: str | None = None


def is_modified(error: PveError) -> bool:
    """Whether nothing was written because somebody else has written since the configuration was read."""
    return _MODIFIED_MEANWHILE in error.message


def write_draft(host: ProxmoxHost, guest: Guest, draft: Draft) -> None:
    """What can be taken back first; a disk that has grown cannot."""
    put_options(host, guest, draft.options, guest.digest)
    if draft.pool is not None:
        move_to_pool(host, guest.vmid, guest.pool, draft.pool)
    unread = []
    for slot, size in draft.sizes.items():
        if not grow_disk(host, guest, slot, size):
            unread.append(slot)
    if draft.sizes:
        _note_growth(host, guest.vmid, unread)


def put_options(host: ProxmoxHost, guest: Guest, options: Options, digest: str | None) -> None:
    """Write options: those that everybody may, then those that only root@pam may."""
    values: dict[str, str] = {}
    deleted: list[str] = []
    for name, value in options.items():
        if value is not None:
            values[name] = value
        elif name in guest.config:
            deleted.append(name)
    unprivileged = guest.config.get("unprivileged") == "1"
    ordinary, rooted = rights.split_root_only(values, deleted, guest.config, unprivileged=unprivileged)
    if ordinary:
        removed = ",".join(ordinary.delete) or None
        form: dict[str, Any] = {**ordinary.options, "delete": removed, "digest": digest}
        host.client.put(*host.path(guest.vmid, "config"), **form)
    rights.write_as_root(host.client, host.shell, guest.vmid, rooted.options, rooted.delete)


def move_to_pool(host: ProxmoxHost, vmid: int, old: str, new: str) -> None:
    """Take a container out of one pool and put it into another; "" stands for none."""
    if old:
        path, query = _pool(old)
        host.client.put(*path, vms=vmid, delete=True, **query)
    if new:
        path, query = _pool(new)
        host.client.put(*path, vms=vmid, **query)


def _pool(name: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The path and the query that name a pool."""
    # A pool in a pool has a name that no path can have; the other form is younger than PVE 8.0.
    if "/" in name:
        return ("pools",), {"poolid": name}
    return ("pools", name), {}


# A change that has failed half-way: take it back, and say what of it was written.

_OPTION_WORDS = {"description": "description and mark", "rootfs": "disk"}


def undo_change(host: ProxmoxHost, before: Guest, draft: Draft, error: PveError | ProviderError) -> ProviderError:
    """Make the container what it was, as far as that can be done; the error says what was written and what was not."""
    if isinstance(error, ProviderError):
        reason, resolution = error.details, error.resolution
    else:
        reason, resolution = error.log, failures.resolution(error)
    lines = [error.message, reason]
    try:
        lines += _put_back(host, before, draft)
    except (PveError, ProviderError) as second:
        lines.append(f"What was written could not be put back: {second}. See, on the node: pct config {before.vmid}")
    what = f"Unable to change container {before.name}"
    return ProviderError(what, details="\n".join(filter(None, lines)), resolution=resolution)


def _put_back(host: ProxmoxHost, before: Guest, draft: Draft) -> list[str]:
    """Restore the options and the pool; return what was written, what was not and what stays, as lines."""
    now = replace(host.config(before.vmid), pool=host.pools().get(before.vmid, ""))
    written = _names_written(before, now, draft)
    grown = {slot for slot in draft.sizes if disk_size(now, slot) > disk_size(before, slot)}
    asked = {*draft.options, *draft.sizes}
    if draft.pool is not None:
        asked.add("pool")
    missing = asked - written - grown
    lines = [f"Written: {_names_text(written | grown)}; not written: {_names_text(missing)}."]
    if written:
        _restore_options(host, before, now, written)
        lines.append(f"What was written was put back: {_names_text(written)}.")
    if grown:
        lines.append(f"A disk cannot be made smaller again: {_names_text(grown)}.")
    return lines


def _names_written(before: Guest, now: Guest, draft: Draft) -> set[str]:
    """The names of what differs from before."""
    names = {name for name in draft.options if before.config.get(name) != now.config.get(name)}
    if (before.text, before.mark) != (now.text, now.mark):
        names.add("description")
    if before.pool != now.pool:
        names.add("pool")
    return names


def _restore_options(host: ProxmoxHost, before: Guest, now: Guest, written: set[str]) -> None:
    options: Options = {name: before.config.get(name) for name in written - {"description", "pool"}}
    new_volumes = _new_volumes(now, options)
    if before.mark is not None and ("description" in written or new_volumes):
        discard = (*before.mark.discard, *new_volumes)
        mark = replace(before.mark, discard=discard, ungrown=now.ungrown)
        options["description"] = marks.mark_text(before.text, mark)
    put_options(host, now, options, now.digest)
    if "pool" in written:
        move_to_pool(host, before.vmid, now.pool, before.pool)
    volumes.delete_unused_copies(host, before.vmid)


def _new_volumes(now: Guest, options: Options) -> tuple[str, ...]:
    """The disks that were made for this change: they may be deleted again, because nothing is on them yet."""
    made = []
    for slot, value_before in options.items():
        if value_before is None and slot.startswith("mp"):
            volume = now.config[slot].partition(",")[0]
            made.append(volume.removeprefix("volume="))
    return tuple(made)


def _names_text(names: set[str]) -> str:
    words = [_OPTION_WORDS.get(name, name) for name in names]
    return ", ".join(sorted(words)) or "nothing"


# Larger disks, on which the file system has to grow, too. Proxmox ends the task well when the file system stayed as
# it was, and says so in the task's log only.

_SAME_SIZE = "already at specified size"
_NOT_GROWN = "Failed to update the container's filesystem"


def repair_hint(node: str, vmid: int, slot: str, volume: str) -> str:
    """How somebody makes the file system of a disk as large as the disk: ``resize2fs`` wants it checked first."""
    commands = (
        f"pct shutdown {vmid}",
        f"pct fsck {vmid} --device {slot} --force 1",
        f"resize2fs $(pvesm path {volume})",
        f"pct start {vmid}",
    )
    again = "The disk itself is large enough; the next up looks at its file system again."
    return f"{again} On node {node}: {' && '.join(commands)}"


def grow_disk(host: ProxmoxHost, guest: Guest, slot: str, size: int) -> bool:
    """Make one of its disks so large; whether its file system was seen to follow.

    ``ProviderError`` when that surely did not. A disk that has the size already is only looked at.
    """
    disk = property_parts(guest.config.get(slot, ""), "volume")
    path = "/" if slot == ROOT_SLOT else disk.get("mp", "")
    now = disk_size(guest, slot)
    growth = Growth(path, guest.ungrown.get(slot, now), size)
    before = _look_at_disk(host, guest, growth)
    said = _resize_disk(host, guest, slot, size) if size > now else []
    after = _look_at_disk(host, guest, growth)
    if any(_NOT_GROWN in line for line in said) or file_systems.stayed_small(growth, before, after):
        repair = repair_hint(host.client.node, guest.vmid, slot, disk["volume"])
        raise file_systems.not_grown(guest.name, growth, after, "\n".join(said), repair)
    why = before.why or after.why
    if why:
        host.on_progress(guest.name, growth.unread(why))
    return not why


def _note_growth(host: ProxmoxHost, vmid: int, unread: Sequence[str]) -> None:
    """Keep in the mark only those of the grown disks whose file systems nobody has seen grow."""
    now = host.config(vmid)
    left = {slot: now.ungrown[slot] for slot in now.ungrown.keys() & unread}
    if now.mark is None or left == now.ungrown:
        return
    description = marks.mark_text(now.text, replace(now.mark, ungrown=left))
    host.client.put(*host.path(vmid, "config"), description=description, digest=now.digest)


def disk_size(guest: Guest, slot: str) -> int:
    """The bytes that one of a container's disks has."""
    return bytes_of(property_parts(guest.config.get(slot, ""), "volume").get("size", ""))


def _look_at_disk(host: ProxmoxHost, guest: Guest, growth: Growth) -> Look:
    """What ``df`` in the container shows of that disk, where it runs and the node lets us in."""
    shell = host.shell
    if host.status(guest.vmid) is not Status.RUNNING:
        return Look(why="the container does not run")
    if shell is None:
        return Look(why="without ssh: nobody can look into the container")
    return file_systems.look(
        lambda command: execute.execute(shell, guest.vmid, command, timeout_s=file_systems.TIMEOUT_S, name=guest.name),
        [growth.path],
    )


def _resize_disk(host: ProxmoxHost, guest: Guest, slot: str, size: int) -> list[str]:
    """Have the node do it; the lines that its task said."""
    begun: list[str] = []
    form: dict[str, Any] = {"disk": slot, "size": f"{mebibytes(size)}M"}

    def ask() -> str:
        begun.append(str(host.client.put(*host.path(guest.vmid, "resize"), **form)))
        return begun[-1]

    with host.turn(guest.storage):
        try:
            host.task(ask, guest.name)
        except PveError as error:
            if error.lost:
                host.settle(guest.vmid, guest.name)
            if _SAME_SIZE not in error.message and disk_size(host.config(guest.vmid), slot) != size:
                raise
    return api.task_lines(host.client, begun[-1]) if begun else []


# Device files of a container's own groups: Proxmox takes numbers, which each image gives as it likes.

_READ_GROUPS_STOPPED = r"""
set -euo pipefail
said=$(umask 022; pct mount "$1")
trap 'pct unmount "$1"' EXIT
root=$(sed -n "s/^mounted CT [0-9]* in '\(.*\)'\$/\1/p" <<<"$said")
[ "$root" ] || { echo "pct mount said: $said" >&2; exit 1; }
# A link in a container must not lead into the node.
file=$root/etc/group
[ "$(realpath -- "$file")" = "$(realpath -- "$root")/etc/group" ] || { echo "/etc/group leads elsewhere" >&2; exit 1; }
cat -- "$file"
"""
"""For the node's bash: ``$1`` is the VMID."""


def named_groups(settings: Mapping[str, Any]) -> frozenset[str]:
    """The groups that device files are to belong to, of those that are given by name."""
    return frozenset(device["gid"] for device in settings.get("devices", ()) if isinstance(device["gid"], str))


def without_named_groups(instance: Instance) -> Instance:
    """The container without device files of named groups: it has to be there before its groups can be read."""
    kept = tuple(device for device in instance.settings.get("devices", ()) if not isinstance(device["gid"], str))
    return replace(instance, settings={**instance.settings, "devices": kept})


def with_group_numbers(host: ProxmoxHost, guest: Guest, instance: Instance) -> Instance:
    """The container with the numbers that its groups have in it; ``ProviderError`` for one that it does not have."""
    names = named_groups(instance.settings)
    if not names:
        return instance
    numbers = numbers_in(_read_groups(host, guest), names)
    devices = []
    for device in instance.settings["devices"]:
        group = device["gid"]
        is_named = group in numbers
        devices.append({**device, "gid": numbers[group], "group": group} if is_named else device)
    return replace(instance, settings={**instance.settings, "devices": tuple(devices)})


def _read_groups(host: ProxmoxHost, guest: Guest) -> str:
    what = f"Unable to read the groups of container {guest.name}"
    if host.shell is None:
        raise ProviderError(
            what,
            details="They can be read on its node only, and the file gives no way there.",
            resolution="Write ssh: root@NODE on the host's page.",
        )
    running = host.status(guest.vmid) is Status.RUNNING
    vmid = str(guest.vmid)
    of_stopped = ["bash", "-c", _READ_GROUPS_STOPPED, "bash", vmid]
    done = host.shell.run(["pct", "exec", vmid, "--", "cat", FILE] if running else of_stopped)
    if done.returncode:
        raise ProviderError(what, details=Foreign.of_output(done.stderr))
    return done.stdout.decode(errors="replace")


# Adoption of a container that is no lab's: find it, read it, and put a lab's mark on it.


def read_container(host: ProxmoxHost, reference: str) -> Instance | None:
    """The container of that name, or else of that number; ``ProviderError`` when several have the name."""
    entries = host.entries()
    vmids = [int(entry["vmid"]) for entry in entries if entry.get("name") == reference]
    if not vmids:
        vmids = [int(entry["vmid"]) for entry in entries if str(entry["vmid"]) == reference]
    if not vmids:
        return None
    if len(vmids) > 1:
        numbers = ", ".join(map(str, sorted(vmids)))
        raise ProviderError(
            f"Unable to look at container {reference}: there are {len(vmids)} of that name",
            details=f"Their numbers: {numbers}",
            resolution="Name one of them by its number.",
        )
    return host.seen(vmids[0])


def find_container(host: ProxmoxHost, instance: Instance) -> Guest:
    """The container of that name that is the lab's, or else no lab's; ``ProviderError`` when there is none."""
    guests = host.guests_named(instance.name)
    ours = [guest for guest in guests if guest.lab == instance.lab]
    candidates = ours or _unmarked(guests)
    if not candidates:
        raise ProviderError(
            f"Unable to look at container {instance.name}",
            details=f"There is none of that name that bears the mark of lab {instance.lab}, or none.",
        )
    return candidates[0]


def adopt_container(host: ProxmoxHost, instance: Instance) -> int:
    """Put the lab's mark on a container that bears none, change nothing else of it; its VMID."""
    try:
        return _adopt_once(host, instance)
    except PveError as error:
        if not is_modified(error):
            raise
        return _adopt_once(host, instance)  # somebody has written since it was read


def _adopt_once(host: ProxmoxHost, instance: Instance) -> int:
    guests = host.guests_named(instance.name)
    for guest in guests:
        if guest.lab == instance.lab:
            return guest.vmid
    guest = _only_unmarked(host, instance, guests)
    seen = instance_of(guest, host.host)
    asked = {"memory": seen.memory, "disk": seen.disk, "swap": seen.settings["swap"]}
    extra = tuple(seen.settings["mounts"])
    mark = Mark(instance.lab, guest.vmid, instance.image, instance.kind, asked=asked, extra=extra)
    host.client.put(
        *host.path(guest.vmid, "config"),
        description=marks.mark_text(guest.text, mark),
        tags=marks.with_tags(marks.tags_in(guest.config.get("tags", "")), instance.lab),
        digest=guest.digest,
    )
    return guest.vmid


def _only_unmarked(host: ProxmoxHost, instance: Instance, guests: Sequence[Guest]) -> Guest:
    """The one container of that name that bears no mark; ``ProviderError`` when there is none, or several."""
    what = f"Unable to adopt container {instance.name}"
    if not guests:
        raise ProviderError(what, details=f"There is no container of that name on node {host.client.node}.")
    unmarked = _unmarked(guests)
    if not unmarked:
        raise ProviderError(
            what,
            details=f"CT {guests[0].vmid} bears the mark of lab {guests[0].lab}.",
            resolution="Take it out of that lab first: delete the line with its mark from its notes in Proxmox.",
        )
    if len(unmarked) > 1:
        numbers = ", ".join(str(guest.vmid) for guest in unmarked)
        raise ProviderError(what, details=f"Several have that name: CT {numbers}", resolution="Rename all but one.")
    return unmarked[0]


def _unmarked(guests: Sequence[Guest]) -> list[Guest]:
    return [guest for guest in guests if guest.mark is None]


# Start, and stop: cleanly, and by force only when it was asked and did not stop in its time.

SETTLE_S = 60.0
"""How long a container that is highly available may take from "it was asked for" to "it is so"."""
STATUS_POLL_S = 0.2
STOP_ATTEMPTS = 5
STOP_AGAIN_S = 2.0
"""Between them: a node may fail to begin the task, and then nobody has asked the container for anything."""
_SHUTDOWN = "vzshutdown"
_DID_NOT_STOP = "did not stop"
_STOP_SLACK_S = 1.0


def start_container(host: ProxmoxHost, guest: Guest) -> None:
    """Start the container and fill the copies of artifacts that are mounted in it; a running one is success."""
    if guest.status is Status.RUNNING:
        return
    with host.turn(guest.storage):
        change_status(host, guest, "start", Status.RUNNING)
    volumes.fill_copies(host, guest)
    volumes.delete_unused_copies(host, guest.vmid)


def stop_container(host: ProxmoxHost, guest: Guest, timeout_s: float) -> None:
    """Stop the container cleanly, by force when it has not stopped after ``timeout_s``; a stopped one is success.

    ``PveError`` when the node does not even begin, or when its task fails before that time: then nothing was forced.
    """
    if guest.status is Status.STOPPED or _shut_down(host, guest, max(1, int(timeout_s))):
        return
    change_status(host, guest, "stop", Status.STOPPED)


def change_status(host: ProxmoxHost, guest: Guest, verb: str, goal: Status, **form: Any) -> None:
    """Start or stop, and see that it has come about: for one that is highly available the task only asks for it."""
    try:
        host.task(lambda: host.client.post(*host.path(guest.vmid, "status", verb), **form), guest.name)
    except PveError as error:
        if error.lost:
            host.settle(guest.vmid, guest.name)
        if host.status(guest.vmid) is not goal:
            raise
    _await_status(host, guest, verb, goal)


def _await_status(host: ProxmoxHost, guest: Guest, verb: str, goal: Status) -> None:
    until = time.monotonic() + SETTLE_S
    while host.status(guest.vmid) is not goal:
        if time.monotonic() > until:
            raise PveError(f"the node has taken the order ({verb}), and after {SETTLE_S:.0f} s it is not {goal} yet")
        time.sleep(STATUS_POLL_S)


def _shut_down(host: ProxmoxHost, guest: Guest, timeout_s: int) -> bool:
    """Whether the container stopped; False when it was asked to and its time ran out."""
    known = _shutdown_tasks(host, guest)
    for left in reversed(range(STOP_ATTEMPTS)):
        try:
            # One that has begun although its answer was lost, or a new one.
            begun = _shutdown_tasks(host, guest) - known
            path = host.path(guest.vmid, "status", "shutdown")
            upid = begun.pop() if begun else str(host.client.post(*path, timeout=timeout_s))
            return _shutdown_ended(host, guest, upid, time.monotonic() + timeout_s)
        except PveError as error:
            if host.status(guest.vmid) is Status.STOPPED:
                return True
            begun = _shutdown_tasks(host, guest) - known
            # What the node failed at may pass; what it refuses, or fails at in its task, it fails at again.
            is_unbegun = not begun and error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
            may_pass = failures.is_transient(error) or error.lost or is_unbegun
            if not left or not may_pass:
                raise
            if failures.is_transient(error):
                known |= begun
        # A node whose answer was lost may begin it a moment later: looked at before it is asked again.
        time.sleep(STOP_AGAIN_S)
    raise AssertionError  # the last attempt has raised or returned


def _shutdown_ended(host: ProxmoxHost, guest: Guest, upid: str, deadline: float) -> bool:
    try:
        # A long drain may take longer than any other task.
        limit_s = max(api.TASK_TIMEOUT_S, deadline - time.monotonic() + _STOP_SLACK_S)
        host.client.task(upid, name=guest.name, on_progress=host.on_progress, timeout_s=limit_s)
    except UnreachableError:
        raise
    except PveError as error:
        is_out_of_time = time.monotonic() >= deadline - _STOP_SLACK_S
        if _DID_NOT_STOP in error.message or is_out_of_time:
            return host.status(guest.vmid) is Status.STOPPED
        raise
    _await_status(host, guest, "shutdown", Status.STOPPED)
    return True


def _shutdown_tasks(host: ProxmoxHost, guest: Guest) -> set[str]:
    """The container's shutdown tasks, running and ended."""
    node = host.client.node
    found = host.client.get("nodes", node, "tasks", vmid=guest.vmid, typefilter=_SHUTDOWN, source="all", limit=50)
    return {str(task["upid"]) for task in found}


# Readiness: the container has an address and its system has started.

READY_POLL_S = 0.25
START_LOG_LINES = 40
_UNASKED = Start("running")
_NOT_YET = Start("not asked yet")


def wait_until_ready(host: ProxmoxHost, guest: Guest, timeout_s: float) -> None:
    """Return when it runs and has the address that its card asks for; ``ReadyTimeoutError`` with what was seen, else.

    A card without IPv4 may have IPv6, or nothing. With ssh its systemd is asked, too.
    """
    deadline = time.monotonic() + timeout_s
    version = _address_version(guest)
    system = _NOT_YET
    while True:
        status = host.status(guest.vmid)
        if status is not Status.RUNNING:
            raise _not_ready_error(host, guest, f"It stopped while starting: it is {status}.", "")
        seen = host.client.get(*host.path(guest.vmid, "interfaces")) or []
        address = address_in(seen, version=version) if version else "none"
        # Asked only once it has an address: `is-system-running` costs more than all of the questions above.
        if address:
            system = _system_start(host, guest, deadline)
        if system.is_over:
            return
        if time.monotonic() >= deadline:
            raise _timeout_error(host, guest, timeout_s, seen, system.text if address else "")
        if system.jobs:
            host.on_progress(guest.name, f"its system is still {system.text}")
        time.sleep(READY_POLL_S)


def _address_version(guest: Guest) -> int:
    """The version of the addresses that the card asks for; 0 when it asks for none."""
    card = property_parts(guest.config.get("net0", ""))
    if card.get("ip", "manual") != "manual":
        return 4
    if card.get("ip6", "manual") != "manual":
        return 6
    return 0


def _system_start(host: ProxmoxHost, guest: Guest, deadline: float) -> Start:
    """What systemd says of itself, once it has started or was watched for a while; a system without it has started."""
    if host.shell is None:
        return _UNASKED
    command = system_start.command(deadline - time.monotonic())
    try:
        done = execute.execute(host.shell, guest.vmid, command, timeout_s=system_start.COMMAND_S, name=guest.name)
    except UnavailableError:
        raise
    except ProviderError as error:
        return Start(error.details or error.message)
    return system_start.start_of(done) or _UNASKED


def _timeout_error(
    host: ProxmoxHost, guest: Guest, timeout_s: float, seen: Sequence[Mapping[str, Any]], system: str
) -> ReadyTimeoutError:
    if system:
        what = f"After {timeout_s:.0f} s it has its address, and its system is still: {system}"
        return _not_ready_error(host, guest, what, f"See, on the node: pct exec {guest.vmid} -- systemctl list-jobs")
    given = [(card.get("name"), card.get("inet") or card.get("inet6") or "none") for card in seen]
    addresses = ", ".join(f"{name} {address}" for name, address in given) or "none"
    what = f"After {timeout_s:.0f} s it is running but has no usable address on {CARD}. Addresses: {addresses}"
    card = property_parts(guest.config.get("net0", ""))
    where = card.get("bridge", "its bridge")
    if "tag" in card:
        where += f" with VLAN {card['tag']}"
    instead = "network: { ip: ADDRESS/PREFIX, gateway: ADDRESS }"
    page = f"{instead}; for a copy: --set proxmox.network.ip=ADDRESS/PREFIX"
    if guest.mark is not None and guest.mark.kind is InstanceKind.BUILDER:
        page = f"on the host's page: build: {{ {instead} }}"
    return _not_ready_error(host, guest, what, f"Does a DHCP server answer on {where}? Else write {page}")


def _not_ready_error(host: ProxmoxHost, guest: Guest, what: str, resolution: str) -> ReadyTimeoutError:
    # Proxmox keeps no console.
    node = host.client.node
    starts = host.client.get("nodes", node, "tasks", vmid=guest.vmid, typefilter="vzstart", source="all", limit=1)
    log = "(none)"
    if starts:
        lines = host.client.get("nodes", node, "tasks", starts[0]["upid"], "log", limit=500)
        log = "\n".join(str(line["t"]) for line in lines[-START_LOG_LINES:]) or "(empty)"
    details = f"{what}\nThe log of its last start:\n{log}"
    return ReadyTimeoutError(f"Unable to start container {guest.name}", details=details, resolution=resolution)
