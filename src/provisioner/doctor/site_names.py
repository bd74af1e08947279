"""The check that the name of a door's site leads to the door, from the machine where provision runs."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from provisioner.doctor.diagnosis import Diagnosis, Verdict, diagnosed
from provisioner.hosts.base import Provider
from provisioner.lab.opening import Lab
from provisioner.lab.resolved import host_name
from provisioner.reconcile.addresses import lan_address
from provisioner.services.base import ResolvedService
from provisioner.values.errors import ProvisionError

MOST_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class SiteName:
    """The name of a site, and where it leads: ``addresses``, or nowhere, and ``error`` says why.

    ``wanted`` is the address at which others reach the door, "" where nobody knows it; ``also`` are further ones that
    lead there from this machine.
    """

    door: str
    name: str
    wanted: str
    addresses: tuple[str, ...] = ()
    error: str = ""
    also: frozenset[str] = frozenset()


def site_diagnosis(site: SiteName) -> Diagnosis:
    """Whether everybody who asks for the name from here gets to the door."""
    return diagnosed(site.door, "site", _verdict(site))


def _verdict(site: SiteName) -> Verdict:
    elsewhere = [address for address in site.addresses if address not in {site.wanted, *site.also}]
    leads = f"{site.name} leads to {', '.join(site.addresses)}" if site.addresses else f"{site.name} leads nowhere"
    if not site.wanted:
        return Verdict(f"{leads}; nobody knows the address of the door, which does not run")
    hint = (
        f"Have the router answer {site.name} with {site.wanted} (dnsmasq: address=/{site.name}/{site.wanted}), "
        f"or write into the hosts file of each device: {site.wanted} {site.name}"
    )
    if not site.addresses:
        return Verdict("", leads, hint, site.error)
    if elsewhere:
        return Verdict("", f"{leads}, and the door is at {site.wanted}", hint)
    return Verdict(leads)


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
    return door.is_on_lan and lab.resolved.containers[door.container].is_on_this_machine


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
