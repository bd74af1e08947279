"""Free arguments and variables of services: what their roles say themselves or keep closed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from provisioner.lab.resolved import ResolvedLab
from provisioner.lab.rules import ARGUMENTS, ENVIRONMENT
from provisioner.services.base import ResolvedService
from provisioner.values.declared import Problem

CONTROL = re.compile(r"[\x00-\x1f]")


def refused_words(lab: ResolvedLab) -> Iterator[Problem]:
    """Yield the free arguments and variables that the service's role would refuse in the container."""
    for service in lab.services.values():
        yield from _arguments(service)
        if service.page.closed_variables:
            yield from _variables(service)


def _arguments(service: ResolvedService) -> Iterator[Problem]:
    for place, word in enumerate(service.written.get(ARGUMENTS) or ()):
        name = str(word).partition("=")[0].replace("_", "-")
        if name in service.page.own_arguments:
            hint = f"Leave it out: an option of {service.role} says it."
            yield service.problem(f"{ARGUMENTS}.{place}", f"{name} is an argument that the role sets itself", hint)


def _variables(service: ResolvedService) -> Iterator[Problem]:
    closed = re.compile(f"({'|'.join(service.page.closed_variables)})", re.IGNORECASE)
    for name, value in (service.written.get(ENVIRONMENT) or {}).items():
        place = f"{ENVIRONMENT}.{name}"
        if closed.fullmatch(str(name)):
            message = "this variable opens the server, or says what the role says"
            yield service.problem(place, message, f"Leave it out, and look for an option of {service.role}.")
        elif CONTROL.search(str(value)):
            yield service.problem(place, "its value holds a control character", "Write one line.")
