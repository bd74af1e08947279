"""The collection in an empty folder, with ansible-core alone, over ssh in a container that is nobody's lab."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.providers.incus import IncusProvider
from provisioner.values.state import Instance
from tests.integration.plain_ansible import ansible, play
from tests.lab.incus import Lab

__all__ = ["ansible"]

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
REACHES = (".ci", "roles/base", "roles/cuda_toolkit", "src/provisioner/ansible", "src/provisioner/cuda")
TIMEOUT_S = 900
WITH_SSH = """
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq -y --no-install-recommends install openssh-server >/dev/null
install -d -m 0700 /root/.ssh
cat > /root/.ssh/authorized_keys
"""
PLAY = """
- hosts: plain
  roles:
    - provisioner.inference.base
    - {role: provisioner.inference.cuda_toolkit, cuda_toolkit_version: "13.0"}
"""
UNCHANGED = "changed=0 "


@pytest.fixture(scope="module")
def folder(ansible: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder into which the built file was installed, and nothing else."""
    folder = tmp_path_factory.mktemp("user")
    subprocess.run([sys.executable, ROOT / ".ci/collection.py", folder], check=True, capture_output=True, timeout=120)
    (file,) = folder.glob("provisioner-inference-*.tar.gz")
    galaxy = Path(sys.executable).parent / "ansible-galaxy"
    install: list[str | Path] = [
        ansible,
        galaxy,
        "collection",
        "install",
        "--offline",
        file,
        "-p",
        folder / "collections",
    ]
    subprocess.run(install, check=True, capture_output=True, cwd=folder, timeout=120)
    file.unlink()
    return folder


@pytest.fixture(scope="module")
def plain(incus_lab: Lab, folder: Path) -> Iterator[str]:
    """The inventory line of a container with an sshd, which no lab owns."""
    assert incus_lab
    provider = IncusProvider("box")
    name = f"t{secrets.token_hex(4)}-plain"
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, timeout=60)
    one = Instance(name, "box", "none", "debian/12")
    provider.create(one)
    try:
        provider.start(one)
        provider.wait_until_ready(one)
        public = key.with_suffix(".pub").read_bytes()
        _in(provider, name, WITH_SSH, public)
        address = _in(provider, name, "hostname -I").split()[0]
        host_key = _in(provider, name, "cut -d' ' -f1,2 /etc/ssh/ssh_host_ed25519_key.pub")
        (folder / "known_hosts").write_text(f"{address} {host_key}")
        options = f"-o UserKnownHostsFile={folder}/known_hosts -o StrictHostKeyChecking=yes"
        yield f'{address} ansible_user=root ansible_ssh_private_key_file={key} ansible_ssh_common_args="{options}"'
    finally:
        provider.delete(one)


def _in(provider: IncusProvider, name: str, script: str, given: bytes = b"") -> str:
    done = provider.execute(name, ["bash", "-c", script], stdin=given, timeout_s=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout.decode())


def _played(ansible: Path, folder: Path, plain: str, text: str) -> str:
    (folder / "hosts").write_text(f"[plain]\n{plain}\n")
    (folder / "play.yml").write_text(text)
    own = {"ANSIBLE_HOME": str(folder / "home"), "ANSIBLE_COLLECTIONS_PATH": str(folder / "collections")}
    return play(ansible, folder, "-i", "hosts", "play.yml", environment=own)


def test_a_role_of_the_collection_proves_itself_and_then_changes_nothing(
    ansible: Path, folder: Path, plain: str
) -> None:
    first = _played(ansible, folder, plain, PLAY)
    assert first.endswith("rc=0"), first
    assert "provisioner.inference.cuda_toolkit : verify | Check that it compiled with the right toolkit" in first
    assert UNCHANGED not in first
    second = _played(ansible, folder, plain, PLAY)
    assert second.endswith("rc=0"), second
    assert UNCHANGED in second


def test_a_value_of_the_wrong_type_is_refused_before_anything_is_touched(
    ansible: Path, folder: Path, plain: str
) -> None:
    said = _played(ansible, folder, plain, PLAY.replace('"13.0"', "[13]"))
    assert not said.endswith("rc=0")
    assert "cuda_toolkit_version" in said
    assert "wheels |" not in said
