"""The fixture ``pve``, a double of its own for each test, and what is behind ``pve_host``: real containers, an sshd."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.ssh import Shell
from provisioner.values.state import Secret
from tests.doubles.proxmox.double import Double, double
from tests.doubles.proxmox.incus_containers import IncusContainers
from tests.doubles.proxmox.lxc import Lxc
from tests.doubles.proxmox.pct import Pct
from tests.doubles.proxmox.ssh_host import NoServerError, SshHost, configs, ssh_host
from tests.doubles.proxmox.world import World
from tests.lab.incus import Lab


@pytest.fixture
def pve() -> Iterator[Double]:
    """A cluster of three nodes; look at ``world``, ask ``url`` with the certificate ``ca``."""
    with double() as running:
        running.world.auth_delay_s = 0
        running.world.locks.timeout_s = 0.3
        yield running


@dataclass(frozen=True)
class PveHost:
    """A double whose containers run, and its first node's sshd; ``access`` reaches both, the API with a token."""

    double: Double
    containers: IncusContainers
    ssh: SshHost
    pct: Pct
    lxc: Lxc
    access: Access

    @property
    def page(self) -> str:
        """The host as a file has it, below its name; the token's secret is ``pve_token``."""
        access = self.access
        return f"""
    proxmox: {access.url}
    user: {access.user}
    token: {{ id: {access.token_id}, secret: !secret pve_token }}
    ssh: {access.ssh}
    ca: {access.ca}"""


@contextmanager
def real_host(lab: Lab) -> Iterator[PveHost]:
    """One such host while the context lasts; ``NoServerError`` where there can be no sshd."""
    with ExitStack() as stack:
        # Not ``tmp_path``: sockets need short paths.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pve-")))
        containers = stack.enter_context(closing(IncusContainers(lab)))
        running = stack.enter_context(double(World(containers)))
        running.world.auth_delay_s = 0
        containers.files = running.world.nodes["pve1"].devices
        pct = stack.enter_context(closing(Pct(running, containers, folder)))
        lxc = stack.enter_context(closing(Lxc(containers, pct.bin, folder)))
        host = stack.enter_context(ssh_host(lab, folder, pct.bin, running.ca))
        containers.configs = configs(folder)
        secret = running.world.access.add_token("root@pam", "provision", privsep=False)
        access = Access(
            running.url,
            "root@pam",
            token_id="provision",
            token_secret=Secret("pve_token", secret),
            ssh=host.destination,
            ssh_config=host.config,
            ca=running.ca,
        )
        stack.enter_context(closing(Shell(access)))
        yield PveHost(running, containers, host, pct, lxc, access)


@contextmanager
def host_for_tests(lab: Lab) -> Iterator[PveHost]:
    """Such a host; skips where there can be none."""
    with ExitStack() as stack:
        try:
            host = stack.enter_context(real_host(lab))
        except NoServerError as error:
            pytest.skip(str(error))
        yield host
