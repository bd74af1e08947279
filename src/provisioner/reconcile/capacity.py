"""Room on hosts for what a plan makes: memory, disks, and ports that somebody else has."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from provisioner.lab.opening import Lab
from provisioner.reconcile.observe import Survey
from provisioner.values.errors import PreflightError, ProviderError
from provisioner.values.events import Diagnostic
from provisioner.values.host_facts import DISK_HINT, MEMORY_HINT
from provisioner.values.plan import Plan
from provisioner.values.state import Fleet, Instance

if TYPE_CHECKING:
    from provisioner.reconcile.effects import Effects

# Ports that a lab is to publish and somebody else has: refused before anything is made.

PORTS_HINT = "Write another port for the service, or end what has it. On the host: ss -tulnp"
SS = "ss"
"""The program of iproute2 that tells who listens."""
TIMEOUT_S = 10
OWNER = re.compile(r'users:\(\("(?P<name>[\w.:/+@ -]{1,15})",pid=(?P<process>[0-9]+),')
"""How ``ss`` names the process of a socket; only root is told of those of others. Odd names are not repeated."""
OF_IPV6_ALONE = "["
"""How an address begins beside which IPv4 has the port still; one that listens on both is ``*``."""


def refuse_taken_ports(lab: Lab, seen: Survey) -> None:
    """Raise ``PreflightError`` where a port of a host that is to be published is somebody else's."""
    taken = list(taken_ports(lab, seen.wanted, seen.actual))
    if taken:
        raise PreflightError(
            "Unable to publish ports that a host has given to others",
            details="\n".join(taken),
            resolution=PORTS_HINT,
        )


def taken_ports(lab: Lab, wanted: Iterable[Instance], actual: Fleet) -> Iterator[str]:
    """Yield in words each port that containers are to publish and that is somebody else's.

    Ports that containers of the lab publish already are theirs, also where another one is to have them. What is no
    container of a host is looked for on this machine alone.
    """
    own = {(instance.host, port) for instance in actual.instances for port in published(instance)}
    for instance in wanted:
        for port in published(instance):
            if (instance.host, port) in own:
                continue
            owner = actual.hosts[instance.host].published.get(port, "")
            if not owner and lab.resolved.containers[instance.name].is_on_this_machine:
                owner = _owner(*port)
            if owner:
                protocol, number = port
                yield f"{instance.name}: port {number} ({protocol}) is taken by {owner}"


def published(instance: Instance) -> Iterator[tuple[str, int]]:
    """Yield protocol and port of each of its publications."""
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


# Memory and disks that a plan asks for: held against what the hosts have, before anything is made.


def check_capacity(desired: Fleet, plan: Plan, effects: Effects) -> None:
    """Warn of memory that the hosts do not have; raise ``PreflightError`` for disks that they cannot have.

    Only hosts are asked on which something is made or enlarged.
    """
    for name, provider in effects.providers.items():
        growing = plan.growing_on(name)
        if not growing:
            continue
        try:
            has = provider.capacity(growing)
        except ProviderError as error:
            effects.emit(Diagnostic("warning", f"Whether host {name} has room is not known: {error.message}"))
            continue
        for words in has.require_room(name):
            effects.emit(Diagnostic("warning", f"Host {name}: {words}", resolution=DISK_HINT))
        short = has.short_memory(container for container in desired.instances if container.host == name)
        if short:
            effects.emit(Diagnostic("warning", f"Host {name}: {short}", resolution=MEMORY_HINT))
