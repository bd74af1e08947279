"""Projects of Incus: provision works in the default one, and sees where else containers of a lab are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from provisioner.providers.incus.client import Client
from provisioner.providers.incus.translate import LAB
from provisioner.providers.incus.wire import WireError

DEFAULT = "default"

Found = Mapping[str, Any]


def divided(client: Client) -> tuple[list[Found], list[Found]]:
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


def moved(others: Iterable[Found], lab: str) -> dict[str, str]:
    """The project of each container of the lab in other ones; one that just starts or stops shows no mark."""
    projects: dict[str, str] = {}
    for instance in others:
        config = instance["config"] or {}
        if config.get(LAB) == lab:
            projects[str(instance["name"])] = str(instance["project"])
    return projects


def words(project: str) -> str:
    """Where such a container is."""
    return f"in project {project}"


def hint(name: str, project: str) -> str:
    """What to do about it."""
    stop = f"incus stop {name} --project {project}"
    move = f"incus move {name} {name} --project {project} --target-project {DEFAULT}"
    return f"Bring it back: {stop} && {move}; or choose another name in the file."
