"""Which host a container lives on, and under which name its neighbours reach it."""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.catalog import Catalog
from provisioner.spec import Container, IncusHost, ProxmoxHost, Spec

DEFAULT_IMAGE = "debian/12"
LOCAL_HOST = "local"
INCUS_DOMAIN = "incus"
"""The DNS domain that an Incus bridge serves its containers' names in (``dns.domain``'s default)."""


def hosts_of(spec: Spec) -> Mapping[str, IncusHost | ProxmoxHost]:
    """The file's hosts; without any, the Incus on this machine under the name ``local``."""
    return spec.hosts or {LOCAL_HOST: IncusHost.model_validate({"incus": "local"})}


def host_of(spec: Spec, container: Container) -> str | None:
    """The host that the container names, or the only one there is; None when that is not decided."""
    hosts = hosts_of(spec)
    if container.host is not None:
        return container.host if container.host in hosts else None
    return next(iter(hosts)) if len(hosts) == 1 else None


def hostname(spec: Spec, name: str) -> str:
    """The name under which the other containers of its host reach the container; it survives a change of address."""
    container = spec.containers[name]
    host = hosts_of(spec)[host_of(spec, container) or LOCAL_HOST]
    if isinstance(host, IncusHost):
        return f"{name}.{INCUS_DOMAIN}"
    address = container.proxmox.network.ip.partition("/")[0] if container.proxmox else ""
    return address if address and address[0].isdigit() else name


def image_of(container: Container, catalog: Catalog) -> str:
    """The image that a container is made of: the file's, else that of its first service's page."""
    pages = (catalog.services[role].defaults.image for role in container.services)
    return container.image or next(pages, DEFAULT_IMAGE)
