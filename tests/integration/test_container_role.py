"""Role ``container`` as Ansible runs it on hosts elsewhere: check mode, diff, and no secret in what it says.

The Proxmox VE is a double; the Incus is a real one that is reached over https.
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

import pytest
import yaml

from provisioner.hosts.incus import IncusProvider
from tests.ansible_environment import ansible_environment
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.fixture import pve
from tests.lab.far import FarIncus
from tests.processes import completed

__all__ = ["pve"]

ROOT = Path(__file__).resolve().parents[2]
SECRET = "PROVISION_SECRET_PVE_TOKEN"


@pytest.fixture
def inventory(pve: Double, tmp_path: Path) -> Path:
    """Two containers of one node, as an ejected lab would write them."""
    lookup = f"{{{{ lookup('ansible.builtin.env', '{SECRET}') }}}}"
    page = {
        "proxmox": pve.url,
        "user": "root@pam",
        "token": {"id": "ci", "secret": lookup},
        "ca": str(pve.ca),
        "bridge": "vmbr0",
    }
    web = {"container_memory": "1GiB", "container_proxmox": {"vmid": 150, "onboot": False}}
    variables = {"container_lab": "role", "container_host": page, "container_image": "debian/12"}
    file = tmp_path / "hosts.yml"
    file.write_text(yaml.safe_dump({"all": {"children": {"containers": {"hosts": {"web": web}, "vars": variables}}}}))
    return file


def play(inventory: Path, secret: str, *arguments: str) -> str:
    """What ``ansible-playbook`` says of ``containers.yml``."""
    program, playbook = Path(sys.executable).parent / "ansible-playbook", ROOT / "playbooks/containers.yml"
    command: list[str | Path] = [program, playbook, "-i", inventory, *arguments]
    done = completed(command, env=os.environ | ansible_environment(ROOT) | {SECRET: secret}, timeout_s=120)
    said = done.stdout + done.stderr
    assert secret not in said
    assert done.returncode == 0, said
    return said


def test_the_role_makes_a_container_of_proxmox_and_deletes_it(pve: Double, inventory: Path) -> None:
    secret = pve.world.access.add_token("root@pam", "ci", privsep=False)
    planned = play(inventory, secret, "--check", "--diff")
    assert "changed=1" in planned
    assert "+vmid: 150" in planned
    assert pve.world.guests == {}, "check mode changes nothing"
    assert "changed=1" in play(inventory, secret, "-vvv")
    assert pve.world.guests[150].config["memory"] == "1024"
    assert "changed=0" in play(inventory, secret)
    assert "changed=1" in play(inventory, secret, "-e", "container_state=absent")
    assert pve.world.guests == {}


def test_a_wrong_secret_is_refused_and_not_said(pve: Double, inventory: Path) -> None:
    with pytest.raises(AssertionError, match="Unable to use Proxmox VE") as caught:
        play(inventory, "canary-00000000-wrong")
    assert "canary" not in str(caught.value)
    assert pve.world.guests == {}


@pytest.mark.incus
@pytest.mark.slow
def test_the_role_makes_a_container_of_an_incus_elsewhere_and_deletes_it(far_incus: FarIncus, tmp_path: Path) -> None:
    lab, there = f"t{secrets.token_hex(4)}", far_incus.endpoint
    page = {"incus": there.address, "cert": there.cert, "key": there.key, "fingerprint": there.fingerprint}
    variables = {"container_lab": lab, "container_host": page, "container_memory": "512MiB"}
    file = tmp_path / "hosts.yml"
    file.write_text(yaml.safe_dump({"containers": {"hosts": {f"{lab}-one": {}}, "vars": variables}}))
    key = Path(there.key).read_text(encoding="ascii").splitlines()[1]
    provider = IncusProvider("far", endpoint=there)
    assert "changed=1" in play(file, key, "--check", "--diff")
    assert provider.observe(lab).instances == ()
    try:
        assert "changed=1" in play(file, key, "-vvv")
        assert [one.memory for one in provider.observe(lab).instances] == [2**29]
        assert "changed=0" in play(file, key)
    finally:
        assert "changed=1" in play(file, key, "-e", "container_state=absent")
    assert provider.observe(lab).instances == ()
