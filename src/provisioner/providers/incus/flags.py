"""The processor flags of the machine that an Incus runs on."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

from provisioner.providers.incus.wire import WireError

EXTENSION = "resources_cpu_flags"
"""The extension of the API by which an Incus tells it; 6.0 does not have it."""
CPUINFO = Path("/proc/cpuinfo")


class Client(Protocol):
    """A client of an Incus."""

    def get(self, *path: str) -> Any:
        """The answer at that path."""


def flags_of(client: Client, server: Mapping[str, Any], *, is_remote: bool) -> frozenset[str]:
    """Return the processor flags of the machine of an Incus: read here where it is this machine, else asked for.

    ``server`` is what ``/1.0`` answers. Empty where nobody tells; who is restricted to projects may not ask.
    """
    if not is_remote:
        return flags_here()
    if EXTENSION not in server.get("api_extensions", ()):
        return frozenset()
    try:
        return flags_in(client.get("resources"))
    except WireError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return frozenset()


def flags_here(cpuinfo: Path = CPUINFO) -> frozenset[str]:
    """Return the flags of this machine's first processor, as the kernel names them; empty where it names none.

    On x86 Linux starts no processors that can do different things.
    """
    try:
        with cpuinfo.open(encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.startswith("flags"):
                    return frozenset(line.partition(":")[2].split())
    except OSError:
        return frozenset()
    return frozenset()


def flags_in(resources: Mapping[str, Any]) -> frozenset[str]:
    """Return the flags that all processors in an answer of ``/1.0/resources`` have; empty where it names none."""
    found = list[frozenset[str]]()
    for socket in resources["cpu"].get("sockets") or ():
        for core in socket.get("cores") or ():
            found.append(frozenset(core.get("flags") or ()))
    return frozenset.intersection(*found) if found else frozenset()
