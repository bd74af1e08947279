"""The settings of containers on Proxmox: what their ``proxmox`` block and their host's page say, defaults filled in."""

from __future__ import annotations

from typing import Any

from provisioner.spec import ProxmoxContainer, ProxmoxHost

NESTING = "nesting"
"""Every container has this feature: systemd of Debian 12 and later wants it."""


def settings_of(host: ProxmoxHost, written: ProxmoxContainer | None) -> dict[str, Any]:
    """What the file decides, by its own words; what it leaves to the host (vmid, storage) is not in it.

    ``features``, ``tags``: sorted tuples. ``devices``, ``mounts``: tuples of mappings, sorted by path. ``network``:
    a mapping without what was left out. ``order`` 0 and ``pool`` "" stand for none. Sizes are bytes.
    """
    options = written or ProxmoxContainer()
    settings: dict[str, Any] = {
        "swap": options.swap,
        "network": _network(host, options),
        "features": tuple(sorted({NESTING, *options.features})),
        "devices": tuple(one.model_dump() for one in sorted(options.devices, key=lambda one: one.path)),
        "mounts": tuple(
            one.model_dump(exclude_none=True) for one in sorted(options.mounts, key=lambda one: one.path)
        ),
        "unprivileged": options.unprivileged,
        "onboot": options.onboot,
        "order": options.order or 0,
        "pool": options.pool or host.pool or "",
        "tags": tuple(sorted(set(options.tags))),
        "description": options.description.strip(),
        "protection": options.protection,
    }
    chosen = {"vmid": options.vmid, "storage": options.storage or host.storage}
    return settings | {name: value for name, value in chosen.items() if value is not None}


def _network(host: ProxmoxHost, options: ProxmoxContainer) -> dict[str, Any]:
    written = options.network.model_dump(exclude_none=True)
    return {"bridge": host.bridge, **written}
