"""The providers of a lab: one for each host of the file, made of what the file says of it."""

from __future__ import annotations

from pathlib import Path

from provisioner.hosts import kind_of, provider_for
from provisioner.hosts.base import Provider
from provisioner.lab.opening import Lab
from provisioner.lab.resolved import ResolvedLab
from provisioner.labfile.hosts import HostPage


def providers_of(lab: Lab) -> dict[str, Provider]:
    """A provider for each host of the file."""
    folder, hosts = lab.loaded.path.parent, lab.resolved.hosts
    return {name: provider_of(name, hosts[name], folder, lab=lab.resolved) for name in lab.used_hosts()}


def provider_of(name: str, page: HostPage, folder: Path, *, lab: ResolvedLab | None = None) -> Provider:
    """The provider of host ``name``, by its page; a relative path in it is one in ``folder``."""
    return provider_for(name, page.kind, **kind_of(page.kind).settings(name, page, folder, lab))
