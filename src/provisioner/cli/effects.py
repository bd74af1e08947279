"""Builds what workflows touch the world with: a provider per host of the file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from provisioner.cluster.reaching import SSH_CONFIG
from provisioner.errors import PreflightError
from provisioner.lab import Lab
from provisioner.providers import provider_for
from provisioner.providers.base import Provider
from provisioner.resolve import hosts_of
from provisioner.spec import ProxmoxHost

if TYPE_CHECKING:
    from provisioner.providers.proxmox.access import Access


def providers_of(lab: Lab) -> dict[str, Provider]:
    """A provider for each host of the file; ``PreflightError`` for a kind of host that this version cannot drive."""
    hosts = hosts_of(lab.spec)
    providers: dict[str, Provider] = {}
    for name in lab.used_hosts():
        host = hosts[name]
        if isinstance(host, ProxmoxHost):
            providers[name] = provider_for(name, "proxmox", access=access_of(host, lab.loaded.path.parent))
            continue
        if host.incus != "local":
            raise PreflightError(
                f"Unable to reach host {name}: this version drives no Incus elsewhere",
                resolution=f"Write {name}: {{ incus: local }} under hosts, or leave its containers out.",
            )
        providers[name] = provider_for(name, "incus")
    return providers


def access_of(host: ProxmoxHost, folder: Path) -> Access:
    """How the node is reached, by its page; a relative path in it is one in ``folder``."""
    from provisioner.providers.proxmox.access import Access

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
