"""Which host a container lives on, and under which name its neighbours reach it."""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.catalog import Catalog
from provisioner.spec import Container, IncusHost, ProxmoxHost, Spec

DEFAULT_IMAGE = "debian/12"
LOCAL_HOST = "local"
LOCAL_INCUS = "local"
"""What ``incus:`` of a host says of the one on this machine."""
INCUS_DOMAIN = "incus"
"""The DNS domain that an Incus bridge serves its containers' names in (``dns.domain``'s default)."""


def hosts_of(spec: Spec) -> Mapping[str, IncusHost | ProxmoxHost]:
    """The file's hosts; without any, the Incus on this machine under the name ``local``."""
    return spec.hosts or {LOCAL_HOST: IncusHost.model_validate({"incus": LOCAL_INCUS})}


def is_elsewhere(host: IncusHost | ProxmoxHost) -> bool:
    """Whether the host is an Incus on another machine."""
    return isinstance(host, IncusHost) and host.incus != LOCAL_INCUS


def host_of(spec: Spec, container: Container) -> str | None:
    """The host that the container names, or the only one there is; None when that is not decided."""
    hosts = hosts_of(spec)
    if container.host is not None:
        return container.host if container.host in hosts else None
    return next(iter(hosts)) if len(hosts) == 1 else None


def hostname(spec: Spec, name: str, user: str, addresses: Mapping[str, str]) -> str:
    """Under which name or address the container ``user`` reaches the container ``name``.

    ``addresses``: those in the LAN that are known, by containers. On one Incus it is a name, which survives a change of
    address; elsewhere an address, for the names of containers are known on their own host only.
    """
    container = spec.containers[name]
    there, here = (host_of(spec, one) for one in (container, spec.containers[user]))
    # Where it is not decided the file is refused, once all that is wrong with it is found.
    if there is not None and there == here and isinstance(hosts_of(spec)[there], IncusHost):
        return f"{name}.{INCUS_DOMAIN}"
    return _fixed_address(container) or addresses.get(name, name)


def has_fixed_address(spec: Spec, name: str) -> bool:
    """Whether the file says the container's address."""
    return bool(_fixed_address(spec.containers[name]))


def _fixed_address(container: Container) -> str:
    address = container.proxmox.network.ip.partition("/")[0] if container.proxmox else ""
    return address if address[:1].isdigit() else ""


def with_images(spec: Spec, images: Mapping[str, str]) -> Spec:
    """The spec in which containers that name no image have the one that ``images`` says, by their names."""
    containers = dict(spec.containers)
    for name, container in spec.containers.items():
        if container.image is None and name in images:
            containers[name] = container.model_copy(update={"image": images[name]})
    return spec.model_copy(update={"containers": containers})


def image_of(container: Container, catalog: Catalog) -> str:
    """The image that a container is made of: the file's, else that of its first service's page."""
    pages = (catalog.services[role].defaults.image for role in container.services)
    return container.image or next(pages, DEFAULT_IMAGE)
