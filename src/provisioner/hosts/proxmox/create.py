"""Create and delete containers; each waits for Proxmox' task and leaves nothing half-done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from provisioner.hosts.proxmox import containers, failures, numbers, rights, templates, translate, volumes
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.containers import change_status
from provisioner.hosts.proxmox.failures import PveError
from provisioner.hosts.proxmox.guest import Guest
from provisioner.hosts.proxmox.host import ProxmoxHost
from provisioner.hosts.proxmox.rights import ConfigWrite
from provisioner.hosts.proxmox.translate import DEFAULT_DISK, gibibytes, options_for
from provisioner.values.errors import ProviderError
from provisioner.values.state import Instance, Status

NUMBER_ATTEMPTS = 20
"""Attempts at a free number: Proxmox may offer the same one to whoever else creates at the same time."""
_UNPACKING = "tar xpf"


def with_all_settings(instance: Instance, access: Access) -> Instance:
    """The container with a setting for whatever the file has one for: what was left out is as it is by default."""
    # Not at the top: pydantic costs as much as all else, and a worker of Ansible pays for it at each task.
    from provisioner.labfile.hosts import ProxmoxHost as Page

    page = Page.model_construct(bridge=access.bridge, pool=access.pool, storage=access.storage)
    return replace(instance, settings={**page.settings_of(None), **instance.settings})


def create_container(host: ProxmoxHost, instance: Instance) -> int:
    """Make the container, stopped; its VMID. On failure nothing is left of it."""
    containers.require_no_publication(instance)
    whole = with_all_settings(instance, host.access)
    wanted = containers.without_named_groups(whole)
    if host.owned(wanted, "create") is not None:
        raise ProviderError(
            f"Unable to create container {wanted.name}", details=f"Lab {wanted.lab} has a container of that name."
        )
    if _await_earlier(host, wanted.name) and host.owned(wanted, "create") is not None:
        # A run that was killed had begun to make it; the node has gone on without us.
        return containers.update_container(host, whole)
    storage = str(wanted.settings.get("storage") or host.storage)
    room = volumes.copy_sizes_for(host, wanted)
    template = templates.provided(host.client, wanted.image, wanted.name, host.machine, host.on_progress)
    rooted: dict[int, ConfigWrite] = {}

    def attempt(vmid: int) -> None:
        form, rooted[vmid] = _creation_form(wanted, vmid, storage, room)
        _create_and_wait(host, wanted, vmid, {**form, "ostemplate": template})

    with host.turn(storage):
        vmid = create_numbered(host, wanted, attempt)
    try:
        rights.write_as_root(host.client, host.shell, vmid, rooted[vmid].options, rooted[vmid].delete)
        if containers.named_groups(whole.settings):
            containers.update_container(host, whole)
    except BaseException:  # an interruption, too, must not leave a container without its devices
        remove_failed(host, vmid, wanted)
        raise
    return vmid


def create_numbered(host: ProxmoxHost, wanted: Instance, attempt: Callable[[int], None]) -> int:
    """Let ``attempt`` make a container under the number that the file gives, or the next free one; the number.

    A number under which disks lie is not free, whatever Proxmox says.
    """
    fixed = wanted.settings.get("vmid")
    occupied = _occupied(host, wanted.name)
    if fixed and int(fixed) in occupied:
        raise numbers.refusal(wanted.name, int(fixed), occupied[int(fixed)])

    def skip(number: int) -> None:
        host.on_progress(wanted.name, f"number {number} is not taken: {', '.join(occupied[number])} lies under it")

    for left in reversed(range(NUMBER_ATTEMPTS)):
        vmid = int(fixed or numbers.next_free(host.client, occupied, skip))
        try:
            attempt(vmid)
        except PveError as error:
            if not failures.is_taken(error):
                raise
            if fixed:
                raise _taken_error(host, wanted.name, vmid, error) from error
            if not left:
                raise
        else:
            return vmid
    raise AssertionError  # the last attempt has raised or returned


def _occupied(host: ProxmoxHost, name: str) -> Mapping[int, Sequence[str]]:
    """The disks that no container has, by their numbers; it is said which storages could not be listed."""
    found = numbers.disks_without_guest(host.client)
    for storage in found.unlisted:
        host.on_progress(name, f"disks of others on storage {storage} are not known")
    return found.by_number


def delete_container(host: ProxmoxHost, guest: Guest) -> None:
    """Delete the container with all of its disks, running or not; one that is protected is refused."""
    if guest.config.get("protection") == "1":
        raise ProviderError(
            f"Unable to delete container {guest.name}: it is protected",
            details=f"CT {guest.vmid} has the option protection.",
            resolution="Write protection: false on its page and run up; or, on the node: "
            f"pct set {guest.vmid} --protection 0",
        )
    if guest.status is Status.RUNNING:
        change_status(host, guest, "stop", Status.STOPPED)
    _release_snapshots(host, guest)
    _destroy_container(host, guest.vmid, guest.name, purge=True)


def _release_snapshots(host: ProxmoxHost, guest: Guest) -> None:
    """Delete the snapshots that name a disk which the configuration does not: Proxmox would leave that disk behind.

    When such a snapshot goes, Proxmox writes the disk into the configuration as unused.
    """
    own = translate.volumes_named(guest.config)
    for snapshot, disks in numbers.named_by_snapshots(host.client, guest.vmid).items():
        if not disks <= own:
            host.task(partial(host.client.delete, *host.path(guest.vmid, "snapshot", snapshot)), guest.name)


def _creation_form(
    wanted: Instance, vmid: int, storage: str, room: Mapping[str, int]
) -> tuple[dict[str, object], rights.ConfigWrite]:
    """What a create is asked for with, and what has to be written after it by root itself."""
    nothing = Guest(vmid, {})
    layout = translate.mount_layout(nothing, wanted, room, storage)
    options = {name: value for name, value in options_for(wanted, nothing, layout).items() if value is not None}
    unprivileged = bool(wanted.settings["unprivileged"])
    ordinary, rooted = rights.split_root_only(options, (), {}, unprivileged=unprivileged)
    form: dict[str, object] = {
        "vmid": vmid,
        "hostname": wanted.name,
        "rootfs": f"{storage}:{gibibytes(wanted.disk or DEFAULT_DISK)}",
        "unprivileged": unprivileged,
        "pool": wanted.settings.get("pool") or None,
    }
    return {**form, **ordinary.options}, rooted


def _create_and_wait(host: ProxmoxHost, wanted: Instance, vmid: int, form: Mapping[str, Any]) -> None:
    begun: list[str] = []

    def ask() -> str:
        begun.append(host.begun(host.client.post("nodes", host.client.node, "lxc", **form)))
        return begun[-1]

    try:
        host.task(ask, wanted.name)
    except PveError as error:
        if failures.is_taken(error) and not begun:
            raise  # somebody else's
        if error.lost:
            host.settle(vmid, wanted.name)
            if host.bears_mark(vmid, wanted):
                return
        if begun:
            remove_failed(host, vmid, wanted)
        raise _creation_error(error, wanted, str(form["ostemplate"])) from error
    except BaseException:
        interrupt_task(host, begun)
        remove_failed(host, vmid, wanted)
        raise


def interrupt_task(host: ProxmoxHost, begun: list[str]) -> None:
    """End a task that nobody waits for any more; Proxmox removes what it has made."""
    for upid in begun[-1:]:
        with suppress(PveError):  # it may have ended; what is left is looked for after this
            host.client.delete("nodes", host.client.node, "tasks", upid)


def remove_failed(host: ProxmoxHost, vmid: int, wanted: Instance) -> None:
    """Delete what a creation that failed has left; by now the number may be somebody else's."""
    host.settle(vmid, wanted.name)
    if host.bears_mark(vmid, wanted):
        # Not purged: backup jobs that name the number are older than this container, and somebody else's.
        _destroy_container(host, vmid, wanted.name, purge=False)


def _destroy_container(host: ProxmoxHost, vmid: int, name: str, *, purge: bool) -> None:
    """Delete the container and the disks that its configuration names; ``purge``: its backup and other jobs, too.

    ``destroy-unreferenced-disks`` is never asked for: it frees whatever bears the number, whosever it is.
    """
    try:
        host.task(lambda: host.client.delete(*host.path(vmid), purge=purge), name)
    except PveError as error:
        if error.lost:
            host.settle(vmid, name)
        if not failures.is_missing(error) and host.client.find(*host.path(vmid, "config")) is not None:
            raise
    host.forget(vmid)


def _await_earlier(host: ProxmoxHost, name: str) -> bool:
    """Wait for the end of what a killed run of ours has left under way; whether there was anything.

    What is only being made has no name yet, so that it would be made a second time.
    """
    active = host.client.get("nodes", host.client.node, "tasks", source="active", typefilter="vzcreate")
    earlier = [task for task in active if host.is_orphaned(task)]
    for task in earlier:
        host.on_progress(name, f"wait for CT {task['id']}, which an earlier run has begun")
        with suppress(PveError):  # well or badly: what came of it is looked at
            host.client.task(str(task["upid"]), name=name, on_progress=host.on_progress)
    return bool(earlier)


def _taken_error(host: ProxmoxHost, name: str, vmid: int, error: PveError) -> ProviderError:
    found = host.client.get("cluster", "resources", type="vm")
    whose = next((str(guest.get("name", "")) for guest in found if int(guest["vmid"]) == vmid), "")
    return ProviderError(
        f"Unable to create container {name}: VMID {vmid} is taken" + (f" by {whose}" if whose else ""),
        details=error.message,
        resolution="Write another vmid on its page, or leave it out: then the next free one is taken.",
    )


def _creation_error(error: PveError, wanted: Instance, template: str) -> Exception:
    """The error with what to do about a template that cannot be unpacked."""
    if _UNPACKING not in error.message:
        return error
    return ProviderError(
        f"Unable to create container {wanted.name}",
        details=failures.details(error),
        resolution=f"Template {template} may be damaged: delete it on the node (pvesm free {template}) and run this "
        "again; it is downloaded anew.",
    )
