"""The settings of containers on Proxmox: what their ``proxmox`` block and their host's page say, defaults filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.lab.resolved import ResolvedLab
from provisioner.labfile.hosts import ProxmoxContainer, ProxmoxHost
from provisioner.values.quantities import written_size

PCT = "pct"
"""The transport that needs nothing in a container."""
PLAIN = ("unprivileged", "onboot", "pool", "tags", "description", "protection")
"""What a file writes as the host says it."""
DEVICE_DEFAULTS: Mapping[str, Any] = {"mode": "0660", "uid": 0, "gid": 0}
MOUNT_DEFAULTS: Mapping[str, Any] = {"backup": False}
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
        "mounts": tuple(one.model_dump(exclude_none=True) for one in sorted(options.mounts, key=lambda one: one.path)),
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


def behind_firewall(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a container that its node holds to what it reaches: no rule counts without its card's firewall.

    Those of another kind of host, in which no card is decided, stay as they are.
    """
    if "network" not in settings:
        return dict(settings)
    return {**settings, "network": {**settings["network"], "firewall": True}}


def direct_ways(lab: ResolvedLab, host: str) -> dict[str, str]:
    """Of the containers of that host which Ansible reaches by an sshd of their own: by which way."""
    ways: dict[str, str] = {}
    for name, container in lab.containers.items():
        if container.host != host or not isinstance(container.page, ProxmoxHost):
            continue
        options = container.written.proxmox
        way = (options.transport if options else None) or container.page.transport
        if way != PCT:
            ways[name] = way
    return ways


def _network(host: ProxmoxHost, options: ProxmoxContainer) -> dict[str, Any]:
    written = options.network.model_dump(exclude_none=True)
    return {"bridge": host.bridge, **written}


def written_form(settings: Mapping[str, Any], host: ProxmoxHost) -> dict[str, Any]:
    """The ``proxmox`` block that gives these settings again, as a file writes it: only what differs from the defaults.

    The inverse of ``settings_of``. What no file can say (a foreign feature) is in it as the host says
    it: whoever reads the block has to see whether the file takes it.
    """
    default = settings_of(host, None)
    seen = {**default, **settings}
    block: dict[str, Any] = {}
    for name in PLAIN:
        if seen[name] != default[name]:
            block[name] = list(seen[name]) if name == "tags" else seen[name]
    block["vmid"] = settings.get("vmid")
    if seen.get("storage") != default.get("storage"):
        block["storage"] = seen["storage"]
    if seen["order"]:
        block["order"] = seen["order"]
    block["network"] = _differing(seen["network"], default["network"])
    block["features"] = [feature for feature in seen["features"] if feature != NESTING]
    block["devices"] = [_differing(device, DEVICE_DEFAULTS) for device in seen["devices"]]
    block["mounts"] = [_mount(mount) for mount in seen["mounts"]]
    said = {name: value for name, value in block.items() if value not in (None, [], {})}
    # 0 is a wish of its own: no swap
    return said if seen["swap"] == default["swap"] else {**said, "swap": _swap(seen["swap"])}


def _swap(size: int) -> str | int:
    return written_size(size) if size else 0


def _mount(options: Mapping[str, Any]) -> dict[str, Any]:
    written = _differing(options, MOUNT_DEFAULTS)
    if "size" in written:
        written["size"] = written_size(written["size"])
    return written


def _differing(options: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    """What is not said by default."""
    return {name: value for name, value in options.items() if name not in default or default[name] != value}
