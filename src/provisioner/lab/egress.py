"""Rules of ``reaches``: services that run code of others reach no more than the file connects and names. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from provisioner.lab.resolved import ResolvedContainer, ResolvedLab
from provisioner.services import knowledge_of
from provisioner.services.base import ResolvedService
from provisioner.values.address import SEPARATOR, Address
from provisioner.values.declared import INTERNET, LARGEST_PORT, REACHES, Problem
from provisioner.values.refusals import did_you_mean
from provisioner.values.state import Service

_PLACE = re.compile(r"(?P<host>\[[^]]*\]|[^:]+):(?P<port>[0-9]{1,5})")
PORTS = {"http": 80, "https": 443}
_URL = re.compile(r"\b(https?)://(?!127[.]|localhost\b|\[::1\])(\[[^]]+\]|[^\s:/\"'?#]+)(?::([0-9]+))?")
"""Scheme, host and port of an address that is elsewhere."""
_ONE = 'Write one address and its port, such as "192.168.1.20:8123".'


def destinations(lab: ResolvedLab, service: ResolvedService) -> list[str]:
    """Return what the service may reach as its role is told it: ``internet``, or HOST:PORT. The file must be right."""
    found = []
    for written in service.written[REACHES]:
        used = lab.services.get(Address(written))
        if used is None:
            found.append(str(written))
        else:
            found.append(f"{lab.hostname(used.container, service.container)}:{used.port}")
    return found


def places(lab: ResolvedLab, container: ResolvedContainer, services: Iterable[Service]) -> tuple[str, ...]:
    """Return all that a container has to reach beside what is public, for all of its services and for their roles.

    Nobody outside of a container can tell its users apart.
    """
    found = {knowledge_of(one.role).registry(one) for one in container.services}
    for service in services:
        found.update(service.variables.get(f"{service.role}_{REACHES}", ()))
        for need in service.needs:
            found.add(f"{lab.hostname(need.container, service.container)}:{lab.services[need].port}")
        for reference in lab.catalog.services[service.role].references.values():
            asked = str(service.variables.get(f"{service.role}_{reference.routes_to}"))
            found.update(f"{host}:{port or PORTS[scheme]}" for scheme, host, port in _URL.findall(asked))
    return tuple(sorted(found - {INTERNET, ""}))


def egress_problems(lab: ResolvedLab) -> Iterator[Problem]:
    """Say what of ``reaches`` is not there, or is more than a service that runs others' code is given."""
    for service in lab.services.values():
        if REACHES not in service.page.references:
            continue
        listed = service.written.get(REACHES) or []
        for place, written in enumerate(listed):
            found = _objection(lab, service, str(written))
            if written in listed[:place]:
                found = f"{written} is named twice", "Name it once."
            if found is not None:
                message, hint = found
                yield service.problem(f"{REACHES}.{place}", message, hint)


def _objection(lab: ResolvedLab, service: ResolvedService, written: str) -> tuple[str, str] | None:
    """Return why something cannot be reached, and what to do; None where it can."""
    used = lab.services.get(Address(written))
    if written == INTERNET or (used is not None and used.port is not None and used is not service):
        return None
    if used is not None:
        is_itself = used is service
        return f"{written} {'is the service itself' if is_itself else 'has no port'}", "Leave it out."
    if _is_network(written):
        return f"{written} is a whole network", _ONE
    place = _PLACE.fullmatch(written)
    if place is not None:
        return _no_place(lab, place["host"], int(place["port"]))
    if _address(written) is not None:
        return f"{written} has no port", _ONE
    known = sorted({INTERNET, *lab.services} - {service.address})
    return f'no service "{written}" in this file', did_you_mean(written, known, always=True)


def _no_place(lab: ResolvedLab, host: str, port: int) -> tuple[str, str] | None:
    """Return why a port of an address cannot be reached, and what to do; None where it can."""
    address = _address(host.removeprefix("[").removesuffix("]"))
    if address is None or (host.startswith("[") and address.version == 4):  # noqa: PLR2004  # brackets are IPv6's
        hint = (
            f"What is elsewhere and has a name is reached with {INTERNET}; services of the file are CONTAINER/SERVICE."
        )
        return f"{host} is no address", f"{_ONE} {hint}"
    if not 1 <= port <= LARGEST_PORT:
        return f"{port} is no port", f"Write 1 to {LARGEST_PORT}."
    if _is_no_machine(address):
        return f"{address} is no other machine's own address", _ONE
    if str(address) in _hosts(lab):
        return f"{address} is a host of this file, and a host is not reached from what it runs", "Name a service on it."
    return None


def _is_no_machine(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address is not one that a single machine elsewhere has for itself."""
    is_broadcast = address == IPv4Address("255.255.255.255")
    is_mapped = isinstance(address, IPv6Address) and (address.ipv4_mapped is not None or address.scope_id is not None)
    is_near = address.is_loopback or address.is_link_local or address.is_unspecified
    return is_near or address.is_multicast or is_broadcast or is_mapped


def _hosts(lab: ResolvedLab) -> set[str]:
    """Return the addresses of hosts that the file says."""
    found = set()
    for page in lab.hosts.values():
        found |= {page.address or "", page.api_host}
    return found - {""}


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _is_network(text: str) -> bool:
    if SEPARATOR not in text:
        return False
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True
