"""The double of Proxmox VE, and the driver's client for it, logged in with a token of root@pam."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from provisioner.hosts.proxmox import ProxmoxProvider
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.api import Client
from provisioner.values.state import Instance, Secret
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.fixture import pve
from tests.unit.hosts.proxmox.box import GIB, driver, wanted

__all__ = ["access", "client", "client_of", "one", "provider", "pve"]


@pytest.fixture
def access(pve: Double) -> Access:
    """A token of root@pam without privilege separation."""
    secret = pve.world.access.add_token("root@pam", "ci", privsep=False)
    return Access(pve.url, "root@pam", "ci", Secret("token", secret), ca=pve.ca)


@pytest.fixture
def client_of(access: Access) -> Callable[..., Client]:
    """Makes a client whose access differs in the given fields; without ``token_secret`` it uses the password."""

    def made(**changes: object) -> Client:
        return Client(dataclasses.replace(access, **changes))  # type: ignore[arg-type]

    return made


@pytest.fixture
def client(access: Access) -> Client:
    """The client that most tests need."""
    return Client(access)


@pytest.fixture
def provider(access: Access) -> ProxmoxProvider:
    """The driver."""
    return driver(access)


@pytest.fixture
def one(provider: ProxmoxProvider) -> Instance:
    """A container that was made."""
    return provider.create(wanted(memory=GIB))
