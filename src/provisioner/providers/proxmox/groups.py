"""Device files of a container's own groups: Proxmox takes numbers, which each image gives as it likes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from provisioner.gpus.choice import FILE, numbers_in
from provisioner.providers.proxmox.guest import Guest
from provisioner.providers.proxmox.host import ProxmoxHost
from provisioner.values.errors import ProviderError
from provisioner.values.plain_data import Foreign
from provisioner.values.state import Instance, Status

READ_STOPPED = r"""
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


def named(settings: Mapping[str, Any]) -> frozenset[str]:
    """The groups that device files are to belong to, of those that are given by name."""
    return frozenset(device["gid"] for device in settings.get("devices", ()) if isinstance(device["gid"], str))


def without(instance: Instance) -> Instance:
    """The container without device files of named groups: it has to be there before its groups can be read."""
    kept = tuple(device for device in instance.settings.get("devices", ()) if not isinstance(device["gid"], str))
    return replace(instance, settings={**instance.settings, "devices": kept})


def numbered(host: ProxmoxHost, guest: Guest, instance: Instance) -> Instance:
    """The container with the numbers that its groups have in it; ``ProviderError`` for one that it does not have."""
    names = named(instance.settings)
    if not names:
        return instance
    numbers = numbers_in(_read(host, guest), names)
    devices = []
    for device in instance.settings["devices"]:
        group = device["gid"]
        is_named = group in numbers
        devices.append({**device, "gid": numbers[group], "group": group} if is_named else device)
    return replace(instance, settings={**instance.settings, "devices": tuple(devices)})


def _read(host: ProxmoxHost, guest: Guest) -> str:
    what = f"Unable to read the groups of container {guest.name}"
    if host.shell is None:
        raise ProviderError(
            what,
            details="They can be read on its node only, and the file gives no way there.",
            resolution="Write ssh: root@NODE on the host's page.",
        )
    running = host.status(guest.vmid) is Status.RUNNING
    vmid = str(guest.vmid)
    of_stopped = ["bash", "-c", READ_STOPPED, "bash", vmid]
    done = host.shell.run(["pct", "exec", vmid, "--", "cat", FILE] if running else of_stopped)
    if done.returncode:
        raise ProviderError(what, details=Foreign.of_output(done.stderr))
    return done.stdout.decode(errors="replace")
