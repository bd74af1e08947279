"""The verb ``doctor``: where the names of a door's sites lead, asked as any program of this machine asks for them."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv6Address, ip_address

from provisioner.doctor.diagnosis import Diagnosis
from provisioner.doctor.sites import SiteName, site_diagnosis
from provisioner.lab.opening import Lab
from provisioner.lab.resolved import host_name
from provisioner.labfile.hosts import IncusHost, is_elsewhere
from provisioner.providers.base import Provider
from provisioner.reconcile.addresses import lan_address
from provisioner.services.base import ResolvedService
from provisioner.values.errors import ProvisionError

MOST_AT_ONCE = 16


def site_diagnoses(lab: Lab, providers: Mapping[str, Provider]) -> tuple[Diagnosis, ...]:
    """What was seen of the name of each site, all asked for at once; the resolver's own limits end the wait."""
    asked: list[tuple[ResolvedService, str, str]] = []
    for service in lab.resolved.services.values():
        wanted = _address(lab, providers, service) if service.sites else ""
        asked += [(service, name, wanted) for name in service.sites]
    if not asked:
        return ()
    with ThreadPoolExecutor(min(len(asked), MOST_AT_ONCE)) as pool:
        return tuple(pool.map(lambda one: site_diagnosis(_looked_up(lab, *one)), asked))


def _address(lab: Lab, providers: Mapping[str, Provider], door: ResolvedService) -> str:
    """Where others reach the door; empty where nobody knows it."""
    shown = lan_address(lab, door.container) if door.is_on_lan else None
    if shown:
        return shown
    provider = providers[host_name(lab.resolved.containers[door.container])]
    try:
        there = provider.observe(lab.name).instance(door.container)
    except ProvisionError:  # which is told of the host
        return ""
    return (there.address if there else None) or ""


def _looked_up(lab: Lab, door: ResolvedService, name: str, wanted: str) -> SiteName:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return SiteName(door.address, name, wanted, error=str(error))
    addresses = tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
    also = frozenset(filter(_is_of_this_machine, addresses)) if _is_shown_here(lab, door) else frozenset()
    return SiteName(door.address, name, wanted, addresses, also=also)


def _is_shown_here(lab: Lab, door: ResolvedService) -> bool:
    """Whether this machine shows the door to the LAN, at each of its addresses of IPv4."""
    page = lab.resolved.containers[door.container].page
    return door.is_on_lan and (page is None or (isinstance(page, IncusHost) and not is_elsewhere(page)))


def _is_of_this_machine(address: str) -> bool:
    if isinstance(ip_address(address), IPv6Address):  # the door listens on IPv4
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
        try:
            trial.bind((address, 0))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return False
            raise
    return True
