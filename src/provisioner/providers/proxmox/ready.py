"""Wait until a container has an address and its system has started."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.inside import system_start
from provisioner.inside.system_start import Start
from provisioner.providers.proxmox import inside
from provisioner.providers.proxmox.guest import Guest, address_in
from provisioner.providers.proxmox.host import ProxmoxHost
from provisioner.providers.proxmox.network import CARD
from provisioner.providers.proxmox.properties import parts
from provisioner.values.errors import ProviderError, ReadyTimeoutError, UnavailableError
from provisioner.values.state import Status

POLL_S = 0.25
LOG_LINES = 40
_UNASKED = Start("running")
_NOT_YET = Start("not asked yet")


def wait(host: ProxmoxHost, guest: Guest, timeout_s: float) -> None:
    """Return when it runs and has the address that its card asks for; ``ReadyTimeoutError`` with what was seen, else.

    A card without IPv4 may have IPv6, or nothing. With ssh its systemd is asked, too.
    """
    deadline = time.monotonic() + timeout_s
    version = _version(guest)
    system = _NOT_YET
    while True:
        status = host.status(guest.vmid)
        if status is not Status.RUNNING:
            raise _not_ready(host, guest, f"It stopped while starting: it is {status}.", "")
        seen = host.client.get(*host.path(guest.vmid, "interfaces")) or []
        address = address_in(seen, version=version) if version else "none"
        # Asked only once it has an address: `is-system-running` costs more than all of the questions above.
        if address:
            system = _system(host, guest, deadline)
        if system.is_over:
            return
        if time.monotonic() >= deadline:
            raise _timeout(host, guest, timeout_s, seen, system.text if address else "")
        if system.jobs:
            host.on_progress(guest.name, f"its system is still {system.text}")
        time.sleep(POLL_S)


def _version(guest: Guest) -> int:
    """The version of the addresses that the card asks for; 0 when it asks for none."""
    card = parts(guest.config.get("net0", ""))
    if card.get("ip", "manual") != "manual":
        return 4
    if card.get("ip6", "manual") != "manual":
        return 6
    return 0


def _system(host: ProxmoxHost, guest: Guest, deadline: float) -> Start:
    """What systemd says of itself, once it has started or was watched for a while; a system without it has started."""
    if host.shell is None:
        return _UNASKED
    command = system_start.command(deadline - time.monotonic())
    try:
        done = inside.execute(host.shell, guest.vmid, command, timeout_s=system_start.COMMAND_S, name=guest.name)
    except UnavailableError:
        raise
    except ProviderError as error:
        return Start(error.details or error.message)
    return system_start.start_of(done) or _UNASKED


def _timeout(
    host: ProxmoxHost, guest: Guest, timeout_s: float, seen: Sequence[Mapping[str, Any]], system: str
) -> ReadyTimeoutError:
    if system:
        what = f"After {timeout_s:.0f} s it has its address, and its system is still: {system}"
        return _not_ready(host, guest, what, f"See, on the node: pct exec {guest.vmid} -- systemctl list-jobs")
    addresses = ", ".join(map(_card_and_address, seen)) or "none"
    what = f"After {timeout_s:.0f} s it is running but has no usable address on {CARD}. Addresses: {addresses}"
    card = parts(guest.config.get("net0", ""))
    where = card.get("bridge", "its bridge")
    if "tag" in card:
        where += f" with VLAN {card['tag']}"
    resolution = f"Does a DHCP server answer on {where}? Else write network: {{ ip: ADDRESS/PREFIX, gateway: ADDRESS }}"
    return _not_ready(host, guest, what, resolution)


def _card_and_address(interface: Mapping[str, Any]) -> str:
    address = interface.get("inet") or interface.get("inet6") or "none"
    return f"{interface.get('name')} {address}"


def _not_ready(host: ProxmoxHost, guest: Guest, what: str, resolution: str) -> ReadyTimeoutError:
    details = f"{what}\nThe log of its last start:\n{_log(host, guest.vmid)}"
    return ReadyTimeoutError(f"Unable to start container {guest.name}", details=details, resolution=resolution)


def _log(host: ProxmoxHost, vmid: int) -> str:
    """The log of the container's last start on its node: Proxmox keeps no console."""
    node = host.client.node
    tasks = host.client.get("nodes", node, "tasks", vmid=vmid, typefilter="vzstart", source="all", limit=1)
    if not tasks:
        return "(none)"
    lines = host.client.get("nodes", node, "tasks", tasks[0]["upid"], "log", limit=500)
    return "\n".join(str(line["t"]) for line in lines[-LOG_LINES:]) or "(empty)"
