"""A container that somebody made on Proxmox: printed, pasted, adopted, free, and ejected, by the command as it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from provisioner.hosts.proxmox import ProxmoxProvider
from provisioner.values.state import Instance
from tests.doubles.proxmox.fixture import PveHost
from tests.integration.plain_ansible import ansible, play
from tests.integration.up.quickstart_lab import Lab

__all__ = ["ansible"]  # a fixture

pytestmark = [pytest.mark.incus]

NAME, BOX, NEW = "adopt2", "adopt2-hand", "adopt2-new"
SECRET = "PROVISION_SECRET_PVE_TOKEN"


@pytest.fixture(scope="module")
def provider(pve_host: PveHost) -> ProxmoxProvider:
    """The node's driver."""
    return ProxmoxProvider("pve1", access=pve_host.access)


@pytest.fixture(scope="module")
def head(pve_host: PveHost) -> str:
    """A file without containers, whose host is that node."""
    access = pve_host.access
    return (
        f"name: {NAME}\nhosts:\n  pve1:\n    proxmox: {access.url}\n    user: {access.user}\n"
        f"    token: {{ id: {access.token_id}, secret: !secret pve_token }}\n"
        f"    ssh: {access.ssh}\n    ca: {access.ca}\ncontainers:\n"
    )


@pytest.fixture(scope="module")
def lab(
    pve_host: PveHost, provider: ProxmoxProvider, head: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    """A lab of nothing, beside a running container that nobody has marked."""
    assert pve_host.access.token_secret is not None
    environment = {
        SECRET: pve_host.access.token_secret.reveal(),
        "PROVISION_SSH_CONFIG": str(pve_host.access.ssh_config),
    }
    lab = Lab(tmp_path_factory.mktemp(NAME), environment, "debian/12", "debian/12", name=NAME)
    by_hand = Instance(BOX, "pve1", f"{NAME}-maker", "debian/12", cpu=1)
    provider.create(by_hand)
    provider.start(by_hand)
    provider.wait_until_ready(by_hand)
    provider.push(BOX, b"precious", "/root/kept")
    provider.client.put(*provider.path(provider.vmid(BOX, BOX), "config"), delete="description,tags")
    lab.write(f"{head}  {NEW}: {{}}\n")
    yield lab
    lab.succeeded("destroy", "--prune", "--yes", "--lab", NAME)


def planned(lab: Lab) -> list[tuple[str, str]]:
    ran = lab.succeeded("plan", "--json")
    return [(line["target"], line["action"]) for line in ran.lines if line["type"] == "planned_change"]


def test_it_is_printed_pasted_adopted_and_then_free(lab: Lab, head: str, provider: ProxmoxProvider) -> None:
    printed = lab.succeeded("import", f"pve1/{provider.vmid(BOX, BOX)}")
    assert yaml.safe_load(printed.out)[BOX]["image"] == "debian/12", "what runs in it says so"
    lab.write(head + printed.out)
    assert planned(lab) == [(BOX, "adopt")]
    lab.succeeded("up", "--yes")
    found = provider.observe(NAME).instance(BOX)
    assert found is not None
    assert [one.name for one in found.snapshots] == ["provision-1-unproved"]
    assert provider.execute(BOX, ["cat", "/root/kept"]).stdout == b"precious"
    again = lab.succeeded("up", "--json")
    assert {line["type"] for line in again.lines} == {"version", "summary"}


def test_what_is_ejected_runs_without_this_package_and_changes_nothing(
    lab: Lab, head: str, pve_host: PveHost, ansible: Path
) -> None:
    lab.write(f"{head}  {NEW}: {{ cpu: 1, proxmox: {{ onboot: false }} }}\n")
    lab.succeeded("up", "--yes")
    lab.succeeded("eject", "out")
    folder = lab.folder / "out"
    said = play(ansible, folder, "site.yml", environment={})
    assert said.endswith("rc=0"), said
    assert "changed=0" in said
    assert "unreachable=0" in said
    assert pve_host.access.token_secret is not None
    token = pve_host.access.token_secret.reveal()
    assert not [one for one in folder.rglob("*") if one.is_file() and token.encode() in one.read_bytes()]
    page = yaml.safe_load((folder / "group_vars/host_pve1.yml").read_text())["container_host"]
    assert page["token"]["secret"].startswith("{{ lookup('ansible.builtin.env', 'PROVISION_SECRET_PVE_TOKEN'")


def test_containers_yml_of_it_changes_nothing_either(lab: Lab) -> None:
    said = play(Path(sys.executable), lab.folder / "out", "containers.yml", environment=dict(lab.environment))
    assert said.endswith("rc=0"), said
    assert "changed=0" in said
