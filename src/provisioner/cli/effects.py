"""Builds what workflows touch the world with: a provider per host of the file."""

from __future__ import annotations

from provisioner.errors import PreflightError
from provisioner.lab import Lab
from provisioner.providers import provider_for
from provisioner.providers.base import Provider
from provisioner.resolve import hosts_of
from provisioner.spec import IncusHost


def providers_of(lab: Lab) -> dict[str, Provider]:
    """A provider for each host of the file; ``PreflightError`` for a kind of host that this version cannot drive."""
    hosts = hosts_of(lab.spec)
    providers: dict[str, Provider] = {}
    for name in lab.used_hosts():
        host = hosts[name]
        if not isinstance(host, IncusHost) or host.incus != "local":
            raise PreflightError(
                f"Unable to reach host {name}: this version drives the Incus on this machine only",
                resolution=f"Write {name}: {{ incus: local }} under hosts, or leave its containers out.",
            )
        providers[name] = provider_for(name, "incus")
    return providers
