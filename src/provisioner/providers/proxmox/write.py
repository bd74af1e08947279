"""The requests that change a container, in an order in which they can be taken back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from provisioner.providers.proxmox import root_only
from provisioner.providers.proxmox.failures import PveError
from provisioner.providers.proxmox.growing import grow
from provisioner.providers.proxmox.guest import Guest
from provisioner.providers.proxmox.host import ProxmoxHost
from provisioner.providers.proxmox.translate import Options

_MODIFIED = "detected modified configuration"


@dataclass(frozen=True, slots=True)
class Draft:
    """What is to be done to a container: ``options`` (None: deleted), ``sizes`` of disks, the ``pool`` it goes to."""

    options: Options
    sizes: Mapping[str, int] = field(default_factory=dict)
    pool: str | None = None


def is_modified(error: PveError) -> bool:
    """Whether nothing was written because somebody else has written since the configuration was read."""
    return _MODIFIED in error.message


def write(host: ProxmoxHost, guest: Guest, draft: Draft) -> None:
    """What can be taken back first; a disk that has grown cannot."""
    put(host, guest, draft.options, guest.digest)
    if draft.pool is not None:
        move(host, guest.vmid, guest.pool, draft.pool)
    for slot, size in draft.sizes.items():
        grow(host, guest, slot, size)


def put(host: ProxmoxHost, guest: Guest, options: Options, digest: str | None) -> None:
    """Write options: those that everybody may, then those that only root@pam may."""
    values: dict[str, str] = {}
    deleted: list[str] = []
    for name, value in options.items():
        if value is not None:
            values[name] = value
        elif name in guest.config:
            deleted.append(name)
    unprivileged = guest.config.get("unprivileged") == "1"
    ordinary, rooted = root_only.divided(values, deleted, guest.config, unprivileged=unprivileged)
    if ordinary:
        removed = ",".join(ordinary.delete) or None
        form: dict[str, Any] = {**ordinary.options, "delete": removed, "digest": digest}
        host.client.put(*host.path(guest.vmid, "config"), **form)
    root_only.write(host.client, host.shell, guest.vmid, rooted.options, rooted.delete)


def move(host: ProxmoxHost, vmid: int, old: str, new: str) -> None:
    """Take a container out of one pool and put it into another; "" stands for none."""
    if old:
        host.client.put(*_pool(old), vms=vmid, delete=True, **_query(old))
    if new:
        host.client.put(*_pool(new), vms=vmid, **_query(new))


def _pool(name: str) -> tuple[str, ...]:
    # A pool in a pool has a name that no path can have; the other form is younger than PVE 8.0.
    return ("pools",) if "/" in name else ("pools", name)


def _query(name: str) -> dict[str, Any]:
    return {"poolid": name} if "/" in name else {}
