"""A machine of nobody's lab, reached over ssh, and a user's folder with the collection and nothing else of ours."""

from __future__ import annotations

import secrets
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from provisioner.hosts.incus import IncusProvider
from provisioner.values.state import Instance
from tests.integration.plain_ansible import play
from tests.integration.running_containers import kept_running

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 900.0
SHORT_S = 120
WITH_SSH = """
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq -y --no-install-recommends install openssh-server >/dev/null
install -d -m 0700 /root/.ssh
cat > /root/.ssh/authorized_keys
"""
UNCHANGED = "changed=0 "


@dataclass(frozen=True)
class PlainMachine:
    """The machine, its inventory line, and the folder from which it is played on."""

    ansible: Path
    folder: Path
    provider: IncusProvider
    name: str
    address: str

    @property
    def line(self) -> str:
        """What stands of it in an inventory."""
        options = f"-o UserKnownHostsFile={self.folder}/known_hosts -o StrictHostKeyChecking=yes"
        key = self.folder / "key"
        return (
            f'{self.address} ansible_user=root ansible_ssh_private_key_file={key} ansible_ssh_common_args="{options}"'
        )

    def play(self, text: str, timeout_s: float = TIMEOUT_S) -> str:
        """What ``ansible-playbook`` says of a play; the last line is its exit code."""
        (self.folder / "hosts").write_text(f"[plain]\n{self.line}\n", encoding="utf-8")
        (self.folder / "play.yml").write_text(text, encoding="utf-8")
        own = {"ANSIBLE_HOME": str(self.folder / "home"), "ANSIBLE_COLLECTIONS_PATH": str(self.folder / "collections")}
        return play(self.ansible, self.folder, "-i", "hosts", "play.yml", environment=own, timeout_s=timeout_s)

    def ssh(self, script: str, given: bytes = b"") -> str:
        """What a shell there prints, reached as Ansible reaches it."""
        options: list[str | Path] = ["-i", self.folder / "key", "-o", f"UserKnownHostsFile={self.folder}/known_hosts"]
        command = ["ssh", *options, "-o", "StrictHostKeyChecking=yes", f"root@{self.address}", script]
        done = subprocess.run(command, input=given, capture_output=True, timeout=SHORT_S, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def play_twice(self, text: str, timeout_s: float = TIMEOUT_S) -> str:
        """What it says the first time, which ends well; the second time changes nothing."""
        first = self.play(text, timeout_s)
        assert first.endswith("rc=0"), first
        assert UNCHANGED not in first
        second = self.play(text)
        assert second.endswith("rc=0"), second
        assert UNCHANGED in second, second
        return first

    def push(self, folder: Path, place: str) -> None:
        """Copy a folder's files to ``place``, which it makes."""
        packed = self.folder / "pushed.tar"
        with tarfile.open(packed, "w") as archive:
            archive.add(folder, ".")
        self.provider.push(self.name, packed, "/root/pushed.tar")
        packed.unlink()
        self.ssh(f"mkdir -p {place} && tar -x -C {place} -f /root/pushed.tar && rm /root/pushed.tar")


def fill_folder(ansible: Path, folder: Path) -> None:
    """Build the collection, install its file below the folder, and make a key."""
    subprocess.run(
        [sys.executable, ROOT / ".ci/collection.py", folder], check=True, capture_output=True, timeout=SHORT_S
    )
    (file,) = folder.glob("provisioner-inference-*.tar.gz")
    galaxy = Path(sys.executable).parent / "ansible-galaxy"
    offline: list[str | Path] = [ansible, galaxy, "collection", "install", "--offline", file]
    install = [*offline, "-p", folder / "collections"]
    subprocess.run(install, check=True, capture_output=True, cwd=folder, timeout=SHORT_S)
    file.unlink()
    key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")]
    subprocess.run(key, check=True, timeout=SHORT_S)


@contextmanager
def plain_machine(ansible: Path, folder: Path, image: str) -> Iterator[PlainMachine]:
    """A container with an sshd, whose host key the folder knows."""
    provider = IncusProvider("box")
    with kept_running(provider, Instance(f"t{secrets.token_hex(4)}-plain", "box", "none", image)) as one:
        _inside(provider, one.name, WITH_SSH, (folder / "key.pub").read_bytes())
        address = _inside(provider, one.name, "hostname -I").split()[0]
        host_key = _inside(provider, one.name, "cut -d' ' -f1,2 /etc/ssh/ssh_host_ed25519_key.pub")
        (folder / "known_hosts").write_text(f"{address} {host_key}", encoding="utf-8")
        yield PlainMachine(ansible, folder, provider, one.name, address)


def _inside(provider: IncusProvider, name: str, script: str, given: bytes = b"") -> str:
    done = provider.execute(name, ["bash", "-c", script], stdin=given, timeout_s=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout.decode())
