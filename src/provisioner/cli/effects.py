"""The providers of a lab: one for each host of the file, made of what the file says of it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from provisioner.hosts import provider_for
from provisioner.hosts.base import Provider
from provisioner.lab.opening import Lab
from provisioner.labfile.hosts import IncusHost, ProxmoxHost
from provisioner.values import paths

if TYPE_CHECKING:
    from provisioner.hosts.incus.api import Endpoint
    from provisioner.hosts.proxmox.access import Access, Direct


def providers_of(lab: Lab) -> dict[str, Provider]:
    """A provider for each host of the file."""
    folder = lab.loaded.path.parent
    return {
        name: provider_of(name, lab.resolved.hosts[name], folder, direct=direct_of(lab, name))
        for name in lab.used_hosts()
    }


def provider_of(name: str, host: IncusHost | ProxmoxHost, folder: Path, *, direct: Direct | None = None) -> Provider:
    """The provider of host ``name``, by its page; a relative path in it is one in ``folder``."""
    if isinstance(host, ProxmoxHost):
        return provider_for(name, "proxmox", access=replace(access_of(host, folder), direct=direct))
    return provider_for(name, "incus", endpoint=endpoint_of(host, folder))


def endpoint_of(host: IncusHost, folder: Path) -> Endpoint:
    """Where that Incus is, by its page; one elsewhere is shown this user's certificate where the page names none."""
    from provisioner.hosts.incus.api import Endpoint, local_endpoint

    if host.is_here:
        return local_endpoint()
    cert, key = (folder / Path(one).expanduser() if one else None for one in (host.cert, host.key))
    own = client_pair()
    return Endpoint(host.incus.rstrip("/"), str(cert or own[0]), str(key or own[1]), host.fingerprint or "")


def client_pair() -> tuple[Path, Path]:
    """The files of this user's client certificate and of its key, whether they are there or not."""
    return paths.config() / "client.crt", paths.config() / "client.key"


def direct_of(lab: Lab, name: str) -> Direct | None:
    """The containers of host ``name`` whose own sshd Ansible uses; None where there is none."""
    host = lab.resolved.hosts[name]
    if not isinstance(host, ProxmoxHost):
        return None
    ways: dict[str, str] = {}
    for container in lab.resolved.containers.values():
        way = host.direct_way(container.written.block)
        if container.host == name and way:
            ways[container.name] = way
    if not ways:
        return None
    from provisioner.hosts.proxmox.access import Direct

    key = lab.loaded.path.parent / Path(host.ssh_key).expanduser() if host.ssh_key else None
    return Direct((paths.state(lab.name) / "ssh").absolute(), ways, key.absolute() if key else None)


def access_of(host: ProxmoxHost, folder: Path) -> Access:
    """How the node is reached, by its page; a relative path in it is one in ``folder``."""
    from provisioner.hosts.proxmox.access import SSH_CONFIG, Access

    config = os.environ.get(SSH_CONFIG)
    return Access(
        url=host.proxmox,
        user=host.user,
        token_id=host.token.id if host.token else None,
        token_secret=host.token.secret if host.token else None,
        password=host.password,
        ssh=host.ssh,
        ssh_config=Path(config) if config else None,
        ca=folder / Path(host.ca).expanduser() if host.ca else None,
        fingerprint=host.fingerprint,
        node=host.node,
        storage=host.storage,
        templates=host.templates,
        bridge=host.bridge,
        pool=host.pool,
    )
