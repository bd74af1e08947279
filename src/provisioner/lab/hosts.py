"""The hosts of a file, and what is fixed about names and addresses there."""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.labfile.spec import Container, IncusHost, Spec
from provisioner.labfile.hosts import ProxmoxHost

DEFAULT_IMAGE = "debian/12"
LOCAL_HOST = "local"
LOCAL_INCUS = "local"
"""What ``incus:`` of a host says of the one on this machine."""
INCUS_DOMAIN = "incus"
"""The DNS domain that an Incus bridge serves its containers' names in (``dns.domain``'s default)."""

HostPage = IncusHost | ProxmoxHost
"""What the file says of a host."""


def hosts_of(spec: Spec) -> Mapping[str, HostPage]:
    """The file's hosts; without any, the Incus on this machine under the name ``local``."""
    return spec.hosts or {LOCAL_HOST: IncusHost.model_validate({"incus": LOCAL_INCUS})}


def is_elsewhere(host: HostPage) -> bool:
    """Whether the host is an Incus on another machine."""
    return isinstance(host, IncusHost) and host.incus != LOCAL_INCUS


def fixed_address(container: Container) -> str:
    """The address that the file gives a container; empty where it gives none."""
    address = container.proxmox.network.ip.partition("/")[0] if container.proxmox else ""
    return address if address[:1].isdigit() else ""
