"""What several modules work with: the lab's Incus through our driver, and one running container in it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from provisioner.providers.incus import IncusProvider
from provisioner.values.state import Instance
from tests.lab.pve.fixture import pve_host

__all__ = ["pve_host"]  # a fixture for everybody here


@pytest.fixture(scope="module")
def provider(incus_lab: object) -> IncusProvider:
    """The lab's Incus."""
    assert incus_lab
    return IncusProvider("box")


@pytest.fixture(scope="module")
def container(provider: IncusProvider) -> Iterator[str]:
    """The name of a running container."""
    lab = f"t{secrets.token_hex(4)}"
    one = Instance(f"{lab}-one", "box", lab, "debian/12")
    provider.create(one)
    provider.start(one)
    provider.wait_until_ready(one)
    yield one.name
    provider.delete(one)
