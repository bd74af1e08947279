"""What may be wrong with the sites of a door: nothing behind them, or nothing that a browser could show. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.lab.resolved import ResolvedLab
from provisioner.services.base import LAN, SITES, ResolvedService
from provisioner.values.address import Address
from provisioner.values.declared import Problem
from provisioner.values.refusals import did_you_mean


def site_problems(lab: ResolvedLab) -> Iterator[Problem]:
    """What is wrong with the sites of the file's doors, each with its place."""
    for door in lab.services.values():
        for option, reference in door.page.references.items():
            if reference.kind != SITES:
                continue
            for name, written in (door.written.get(option) or {}).items():
                problem = _problem(lab, written)
                if problem is not None:
                    yield Problem((*door.path, option, name), *problem)


def _problem(lab: ResolvedLab, written: str) -> tuple[str, str] | None:
    """Why a door cannot have a site of what is written, and what to do; None where it can."""
    service = lab.services.get(Address(written))
    offered = [address for address, other in lab.services.items() if _answers_http(other)]
    if service is None:
        hint = did_you_mean(written, sorted(offered), always=True) or "There is none in this file that answers HTTP."
        return f'no service "{written}" in this file', hint
    if service.sites:
        return f"{written} is a door itself", "Name the service that answers behind it."
    if not _answers_http(service):
        return f"{service.page.title} answers no HTTP", "Leave the site out: its own clients reach it by its port."
    return None


def _answers_http(service: ResolvedService) -> bool:
    return service.health is not None and service.port is not None


def site_warnings(lab: ResolvedLab) -> list[Problem]:
    """The services that the LAN reaches past the door that has them as sites, without TLS."""
    doors: dict[Address, tuple[str, Address]] = {}
    for door in lab.services.values():
        for name, written in door.sites.items():
            doors.setdefault(Address(written), (name, door.address))
    found = []
    for used, (name, door_address) in doors.items():
        service = lab.services.get(used)
        if service is not None and service.expose == LAN:
            message = f"it is the site {name} of {door_address}, and the LAN also reaches its port without TLS"
            found.append(service.problem("expose", message, "Leave expose: lan out: the door reaches it without."))
    return found
