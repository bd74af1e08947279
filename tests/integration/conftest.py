"""What several modules work with: the lab's Incus through our driver, and one running container in it."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # what only some tests ask for is no input of the others
    from provisioner.hosts.incus import IncusProvider
    from tests.doubles.proxmox.fixture import PveHost
    from tests.lab.incus import Lab


@pytest.fixture(scope="session")
def pve_host(incus_lab: Lab) -> Iterator[PveHost]:
    """A Proxmox host with containers that run; skips where there can be none."""
    from tests.doubles.proxmox.fixture import host_for_tests

    with host_for_tests(incus_lab) as host:
        yield host


@pytest.fixture(scope="session")
def exllama_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The Python of a venv with exllamav2 and exllamav3, which is gone afterwards."""
    from tests.exllama_venv import exllama_venv

    folder = tmp_path_factory.mktemp("exllama")
    yield exllama_venv(folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def provider(incus_lab: object) -> IncusProvider:
    """The lab's Incus."""
    from provisioner.hosts.incus import IncusProvider

    assert incus_lab
    return IncusProvider("box")


@pytest.fixture(scope="module")
def container(provider: IncusProvider) -> Iterator[str]:
    """The name of a running container."""
    from provisioner.values.state import Instance

    lab = f"t{secrets.token_hex(4)}"
    one = Instance(f"{lab}-one", "box", lab, "debian/12")
    provider.create(one)
    provider.start(one)
    provider.wait_until_ready(one)
    yield one.name
    provider.delete(one)
