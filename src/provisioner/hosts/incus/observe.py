"""Facts of an Incus beside a lab's containers: other projects that have some, and flags of its processors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

from provisioner.hosts.incus.api import Client, WireError
from provisioner.hosts.incus.translate import LAB

# Projects: provision works in the default one, and sees in which others containers of a lab are.

DEFAULT = "default"

Found = Mapping[str, Any]


def divided_by_project(client: Client) -> tuple[list[Found], list[Found]]:
    """The instances of the default project, and those of all others that we may see."""
    try:
        found = client.get("instances", recursion="1", **{"all-projects": "true"})
    except WireError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return client.get("instances", recursion="1"), []  # a certificate that is limited to projects
    here: list[Found] = []
    elsewhere: list[Found] = []
    for instance in found:
        is_here = instance.get("project", DEFAULT) == DEFAULT
        instances = here if is_here else elsewhere
        instances.append(instance)
    return here, elsewhere


def in_other_projects(others: Iterable[Found], lab: str) -> dict[str, str]:
    """The project of each container of the lab in other ones; one that just starts or stops shows no mark."""
    projects: dict[str, str] = {}
    for instance in others:
        config = instance["config"] or {}
        if config.get(LAB) == lab:
            projects[str(instance["name"])] = str(instance["project"])
    return projects


def project_text(project: str) -> str:
    """Where such a container is."""
    return f"in project {project}"


def project_hint(name: str, project: str) -> str:
    """What to do about it."""
    stop = f"incus stop {name} --project {project}"
    move = f"incus move {name} {name} --project {project} --target-project {DEFAULT}"
    return f"Bring it back: {stop} && {move}; or choose another name in the file."


# Flags of the processors of the machine that an Incus runs on.

EXTENSION = "resources_cpu_flags"
"""The extension of the API by which an Incus tells it; 6.0 does not have it."""
CPUINFO = Path("/proc/cpuinfo")


class FlagsClient(Protocol):
    """A client of an Incus."""

    def get(self, *path: str) -> Any:
        """The answer at that path."""


def flags_of(client: FlagsClient, server: Mapping[str, Any], *, is_remote: bool) -> frozenset[str]:
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
