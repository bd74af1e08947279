"""Whether the name of a door's site leads to the door, from the machine where provision runs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.doctor.diagnosis import Diagnosis, Verdict, diagnosed


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
