"""From the file's hosts to the drivers that reach them."""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.errors import PreflightError
from provisioner.providers import provider_for
from provisioner.providers.base import Provider
from provisioner.resolve import hosts_of
from provisioner.spec import IncusHost, ProxmoxHost, Spec

LOCAL = "local"


def open_providers(spec: Spec) -> Mapping[str, Provider]:
    """A provider for every host of the file, also for one that holds nothing now; what has no driver is refused."""
    return {name: _open(name, host) for name, host in hosts_of(spec).items()}


def _open(name: str, host: IncusHost | ProxmoxHost) -> Provider:
    if isinstance(host, IncusHost) and host.incus == LOCAL:
        return provider_for(name, "incus")
    what = f"Incus at {host.incus}" if isinstance(host, IncusHost) else f"Proxmox at {host.proxmox}"
    raise PreflightError(
        f"Unable to use host {name}: {what}",
        details="This version works with the Incus of the machine that it runs on.",
        resolution=f"Run provision there, with `{name}: {{ incus: {LOCAL} }}`, or take the host out of the file.",
    )
