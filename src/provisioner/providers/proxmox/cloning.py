"""Copies of a container."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from provisioner.providers.proxmox import failures, making, marks, snapshots
from provisioner.providers.proxmox.failures import PveError
from provisioner.providers.proxmox.guest import TEMPORARY, Guest
from provisioner.providers.proxmox.host import ProxmoxHost
from provisioner.providers.proxmox.network import released
from provisioner.values.errors import ProviderError
from provisioner.values.state import Instance, Status


def copy(host: ProxmoxHost, guest: Guest, wanted: Instance) -> int:
    """Copy the container as it is now, under another name and number, with addresses of its own; the number."""
    if any(entry.get("name") == wanted.name for entry in host.entries()):
        raise ProviderError(
            f"Unable to clone container {guest.name} as {wanted.name}",
            details=f"Node {host.client.node} has a container {wanted.name}.",
        )
    with host.turn(guest.storage), _state(host, guest) as state:

        def attempt(vmid: int) -> None:
            _copy(host, guest, wanted, vmid, state)

        vmid = making.numbered(host, replace(wanted, settings={}), attempt)
    try:
        card = guest.config.get("net0")
        config = host.config(vmid)
        if card and released(card) != card:
            net = released(config.config["net0"])
            host.client.put(*host.path(vmid, "config"), net0=net, digest=config.digest)
    except BaseException:  # an interruption, too, must not leave a copy that fights with its source over its address
        making.remove(host, vmid, wanted)
        raise
    return vmid


@contextmanager
def _state(host: ProxmoxHost, guest: Guest) -> Iterator[str]:
    """What is copied: a stopped container as it is (""), a running one by a snapshot that goes afterwards."""
    for snapshot in snapshots.listed(host, guest):
        if str(snapshot["name"]).startswith(TEMPORARY):
            snapshots.forget(host, guest, str(snapshot["name"]))  # a run that was killed has left it
    if guest.status is not Status.RUNNING:
        yield ""
        return
    kept = f"{TEMPORARY}{secrets.token_hex(4)}"
    try:
        snapshots.take_plainly(host, guest, kept, "Only while a copy is made")
        yield kept
    finally:
        host.settle(guest.vmid, guest.name)
        if any(snapshot["name"] == kept for snapshot in snapshots.listed(host, guest)):
            snapshots.forget(host, guest, kept)


def _copy(host: ProxmoxHost, guest: Guest, wanted: Instance, vmid: int, state: str) -> None:
    mark = replace(snapshots.mark_of(guest), vmid=vmid, mac=False, discard=(), snapshot="")
    form: dict[str, Any] = {
        "newid": vmid,
        "hostname": wanted.name,
        "description": marks.written(guest.text, mark),
        "full": True,
        "snapname": state or None,
        "pool": guest.pool or None,
    }
    begun: list[str] = []

    def ask() -> str:
        begun.append(host.begun(host.client.post(*host.path(guest.vmid, "clone"), **form)))
        return begun[-1]

    try:
        host.task(ask, wanted.name)
    except PveError as error:
        if failures.is_taken(error) and not begun:
            raise  # somebody else's
        host.settle(guest.vmid, wanted.name)
        if error.lost and host.bears_mark(vmid, wanted):
            return
        if begun:
            making.remove(host, vmid, wanted)
        raise
    except BaseException:
        making.interrupt(host, begun)
        host.settle(guest.vmid, wanted.name)
        making.remove(host, vmid, wanted)
        raise
