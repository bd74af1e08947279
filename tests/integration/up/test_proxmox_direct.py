"""``transport: ssh``: a lab on Proxmox whose containers Ansible reaches by their own sshd.

The API is the double's; the containers, their sshd, ours on the node and Ansible's work are real. The tests build on
each other, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from provisioner.hosts.proxmox import ProxmoxProvider
from tests.doubles.proxmox.fixture import PveHost
from tests.integration.plain_ansible import ansible, play
from tests.integration.up.quickstart_lab import ENGINE_KEY, Lab, Ran

__all__ = ["ansible"]  # fixture

pytestmark = [pytest.mark.incus, pytest.mark.proxmox]

NAME, BOX = "direct", "direct-one"
CONFIG = "/etc/ssh/sshd_config.d/test.conf"
FILE = """
name: direct
hosts:
  pve1: {page}
    transport: ssh
models:
  tiny: {{ source: "builtin:tiny", context: 512 }}
containers:
  direct-one:
    image: debian/12
    cpu: 1
    memory: 1GiB
    services: {services}
"""
ENGINE = "{ llama_cpp: { model: tiny, api_key: !secret engine_key } }"
UNIT = "/etc/systemd/system/llama-server.service"


@pytest.fixture(scope="module")
def provider(pve_host: PveHost) -> ProxmoxProvider:
    """The node's driver, which reaches containers by ``pct exec``."""
    return ProxmoxProvider("pve1", access=pve_host.access)


@pytest.fixture(scope="module")
def inside(provider: ProxmoxProvider) -> Callable[[str], str]:
    """Runs a line of shell in the container, which must succeed."""

    def run(line: str) -> str:
        done = provider.execute(BOX, ["sh", "-ec", line])
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    return run


@pytest.fixture(scope="module")
def text(pve_host: PveHost) -> str:
    """The file, without a service."""
    return FILE.format(page=pve_host.page, services="{}")


@pytest.fixture(scope="module")
def lab(pve_host: PveHost, text: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, of which nothing is there."""
    assert pve_host.access.token_secret is not None
    environment = {
        "PROVISION_SECRET_PVE_TOKEN": pve_host.access.token_secret.reveal(),
        "PROVISION_SSH_CONFIG": str(pve_host.access.ssh_config),
    }
    folder = tmp_path_factory.mktemp(NAME)
    lab = Lab(folder, {**environment, "XDG_STATE_HOME": str(folder / "state")}, "", "", name=NAME)
    lab.write(text)
    yield lab
    lab.succeeded("destroy", "--prune", "--yes", "--lab", NAME)


def refused(ran: Ran) -> str:
    """What an ``up`` said that failed."""
    assert ran.code == 1, ran.out + ran.err
    return ran.err


def logins(inside: Callable[[str], str]) -> int:
    """How often the container's sshd has let in root by a key."""
    return int(inside("journalctl --unit ssh --output cat | grep -c 'Accepted publickey for root' || true"))


def test_a_template_without_sshd_is_told_with_what_to_install(lab: Lab, inside: Callable[[str], str]) -> None:
    said = refused(lab.provision("up", "--yes"))
    assert "There is no sshd in it." in said
    assert "apt-get install openssh-server" in said
    inside("export DEBIAN_FRONTEND=noninteractive; apt-get -qq update && apt-get -qq install openssh-server >/dev/null")


def test_then_up_works_through_it(lab: Lab, inside: Callable[[str], str], pve_host: PveHost) -> None:
    calls = len(pve_host.lxc.attached)
    lab.succeeded("up", "--yes")
    assert len(pve_host.lxc.attached[calls:]) < 8, "Ansible went through the node"
    assert logins(inside) >= 2, "one for the trial, one for Ansible"
    commands = pve_host.ssh.commands
    assert lab.provision("plan", "--detailed-exitcode").code == 0
    assert pve_host.ssh.commands == commands + 1


def test_another_host_key_than_the_node_tells_is_refused(lab: Lab, inside: Callable[[str], str]) -> None:
    inside(
        f"ssh-keygen -q -t ed25519 -N '' -f /root/other; echo 'HostKey /root/other' >{CONFIG}; systemctl restart ssh"
    )
    before = logins(inside)
    said = refused(lab.provision("up", "--full", "--yes"))
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in said
    assert "shows none of the keys in /etc/ssh/ssh_host_*_key.pub" in said
    assert logins(inside) == before
    inside(f"rm {CONFIG}; systemctl restart ssh")


@pytest.mark.slow
def test_an_sshd_that_lets_in_no_root_is_told(lab: Lab, inside: Callable[[str], str]) -> None:
    inside(f"echo 'PermitRootLogin no' >{CONFIG}; systemctl restart ssh")
    said = refused(lab.provision("up", "--full", "--yes"))
    assert "Permission denied" in said
    assert "PermitRootLogin" in said
    inside(f"rm {CONFIG}; systemctl restart ssh")


@pytest.mark.slow
def test_it_is_reached_through_the_node_where_the_file_says_so(
    lab: Lab, text: str, inside: Callable[[str], str]
) -> None:
    lab.write(text.replace("transport: ssh", "transport: jump"))
    before = logins(inside)
    lab.succeeded("up", "--full", "--yes")
    assert logins(inside) > before
    assert (lab.folder / f"state/provisioner/{NAME}/ssh/id_ed25519").stat().st_mode & 0o777 == 0o600
    lab.write(text)


@pytest.mark.slow
def test_a_service_is_made_drifts_and_is_mended(
    lab: Lab, pve_host: PveHost, inside: Callable[[str], str], ansible: Path, tmp_path: Path
) -> None:
    lab.write(FILE.format(page=pve_host.page, services=ENGINE))
    lab.succeeded("up", "--yes")
    inside(f"echo '# by hand' >>{UNIT}")
    changes = [one for one in lab.provision("plan", "--json").lines if one["type"] == "planned_change"]
    assert [(one["target"], one["action"]) for one in changes] == [(f"{BOX}/llama_cpp", "configure")]
    lab.succeeded("up", "--yes")
    assert lab.provision("plan", "--detailed-exitcode").code == 0
    assert lab.provision("verify").code == 0
    assert lab.provision("exec", BOX, "--", "echo", "hello").out == "hello\n"
    folder = tmp_path / "ejected"
    lab.succeeded("eject", str(folder))
    assert "ansible_connection: ssh" in (folder / "hosts.yml").read_text(encoding="utf-8")
    said = play(ansible, folder, "verify.yml", environment={"PROVISION_SECRET_ENGINE_KEY": ENGINE_KEY})
    assert said.endswith("\nrc=0"), said
