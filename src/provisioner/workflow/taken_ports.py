"""Ports of this machine that a lab is to publish and somebody else has: refused before anything is made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from provisioner.lab.opening import Lab
from provisioner.labfile.hosts import is_elsewhere
from provisioner.values.errors import PreflightError
from provisioner.values.state import Instance
from provisioner.workflow.surveying import Survey

PROC = Path("/proc")
TABLES = {"tcp": ("tcp", "tcp6"), "udp": ("udp", "udp6")}
WAITING = {"tcp": "0A", "udp": "07"}
"""The states of sockets that listen (``TCP_LISTEN``), and of those of UDP that are bound (``TCP_CLOSE``)."""
OF_IPV6_ALONE = re.compile(r"(?!0{32})(?!0{16}FFFF0000)[0-9A-F]{32}")
"""Addresses beside which IPv4 has the port still: all of IPv6 but ``::`` and those that stand for IPv4."""
LONGEST_NAME = 15
"""Characters of a process' name that Linux keeps."""


def refuse_taken_ports(lab: Lab, seen: Survey) -> None:
    """Raise ``PreflightError`` where a port that is to be published on this machine is somebody else's.

    Ports that containers of the lab publish already are theirs, also where another one is to have them.
    """
    own = {one for instance in seen.actual.instances for one in _published(instance)}
    taken: dict[str, str] = {}
    for instance in seen.wanted:
        container = lab.resolved.containers[instance.name]
        is_here = not container.is_on_proxmox and (container.page is None or not is_elsewhere(container.page))
        for protocol, port in _published(instance) if is_here else ():
            if (protocol, port) not in own and (inode := _inode(protocol, port)):
                taken[f"{instance.name}: port {port} ({protocol})"] = _owner(inode)
    if taken:
        raise PreflightError(
            "Unable to publish on this machine what it has given to others",
            details="\n".join(f"{what} is taken by {owner}" for what, owner in taken.items()),
            resolution="Write another port for the service, or end what has it: ss -tulnp",
        )


def _published(instance: Instance) -> Iterator[tuple[str, int]]:
    for device in instance.devices:
        if device.kind == "publish":
            port = device.properties["listen"].rpartition(":")[2]
            if port.isdecimal():
                yield device.properties.get("protocol", "tcp"), int(port)


def _inode(protocol: str, port: int) -> str:
    """Return the inode of a socket that waits on the port, empty where none does."""
    for table in TABLES.get(protocol, ()):
        with suppress(FileNotFoundError):  # a machine without IPv6
            for line in (PROC / "net" / table).read_text(encoding="ascii").splitlines()[1:]:
                row = line.split()
                address, _, number = row[1].partition(":")
                is_there = row[3] == WAITING[protocol] and int(number, 16) == port
                if is_there and not OF_IPV6_ALONE.match(address):
                    return row[9]
    return ""


def _owner(inode: str) -> str:
    """Return what a socket's process is called; only root sees those of others."""
    for process in PROC.glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            if any(str(one.readlink()) == f"socket:[{inode}]" for one in (process / "fd").iterdir()):
                name = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()[:LONGEST_NAME]
                return f"process {process.name} ({name})"
    return "a process that cannot be seen"
