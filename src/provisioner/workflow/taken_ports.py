"""Ports of this machine that a lab is to publish and somebody else has: refused before anything is made."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

from provisioner.lab.opening import Lab
from provisioner.labfile.hosts import is_elsewhere
from provisioner.values.errors import PreflightError
from provisioner.values.state import Instance
from provisioner.workflow.surveying import Survey

SS = "ss"
"""The program of iproute2 that tells who listens."""
TIMEOUT_S = 10
OWNER = re.compile(r'users:\(\("(?P<name>[\w.:/+@ -]{1,15})",pid=(?P<process>[0-9]+),')
"""How ``ss`` names the process of a socket; only root is told of those of others. Odd names are not repeated."""
OF_IPV6_ALONE = "["
"""How an address begins beside which IPv4 has the port still; one that listens on both is ``*``."""


def refuse_taken_ports(lab: Lab, seen: Survey) -> None:
    """Raise ``PreflightError`` where a port that is to be published on this machine is somebody else's.

    Ports that containers of the lab publish already are theirs, also where another one is to have them.
    """
    own = {one for instance in seen.actual.instances for one in _published(instance)}
    taken: list[str] = []
    for instance in seen.wanted:
        if not _is_here(lab, instance):
            continue
        for protocol, port in _published(instance):
            owner = "" if (protocol, port) in own else _owner(protocol, port)
            if owner:
                taken.append(f"{instance.name}: port {port} ({protocol}) is taken by {owner}")
    if taken:
        raise PreflightError(
            "Unable to publish on this machine what it has given to others",
            details="\n".join(taken),
            resolution="Write another port for the service, or end what has it: ss -tulnp",
        )


def _is_here(lab: Lab, instance: Instance) -> bool:
    container = lab.resolved.containers[instance.name]
    if container.is_on_proxmox:
        return False
    return container.page is None or not is_elsewhere(container.page)


def _published(instance: Instance) -> Iterator[tuple[str, int]]:
    """Yield protocol and port of each publication."""
    for device in instance.devices:
        if device.kind == "publish":
            port = device.properties["listen"].rpartition(":")[2]
            yield device.properties.get("protocol", "tcp"), int(port)


def _owner(protocol: str, port: int) -> str:
    """Return the process that listens on a port by IPv4, in words; empty where none does.

    It is empty as well where ``ss`` is not there or does not answer: then the host refuses the port itself.
    """
    command = [SS, f"--{protocol}", "--listening", "--numeric", "--processes", "--no-header", f"sport = :{port}"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False).stdout
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""
    for line in said.splitlines():
        address = line.split()[3]
        if address.startswith(OF_IPV6_ALONE):
            continue
        owner = OWNER.search(line)
        if owner is None:
            return "a process that cannot be seen"
        return f"process {owner['process']} ({owner['name']})"
    return ""
