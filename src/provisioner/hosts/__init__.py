"""The registry of providers: one driver per kind of host, imported when the first host of that kind is met."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from provisioner.hosts.base import Provider


def _incus(host: str, **settings: Any) -> Provider:
    from provisioner.hosts.incus import IncusProvider

    return IncusProvider(host, **settings)


def _fake(host: str, **settings: Any) -> Provider:
    from provisioner.hosts.fake import FakeProvider

    return FakeProvider(host, **settings)


def _proxmox(host: str, **settings: Any) -> Provider:
    from provisioner.hosts.proxmox import ProxmoxProvider

    return ProxmoxProvider(host, **settings)


REGISTRY: Mapping[str, Callable[..., Provider]] = {"incus": _incus, "proxmox": _proxmox, "fake": _fake}


def provider_for(host: str, kind: str, **settings: Any) -> Provider:
    """The provider of host ``host``, one of ``kind`` ("incus", "proxmox", "fake"); ``settings``: that driver's own."""
    driver: Provider = REGISTRY[kind](host, **settings)
    return driver
