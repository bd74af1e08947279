"""The image of which AWX runs plays: built by ansible-builder and Podman in a container, used by ansible-navigator.

Its base image is made of a container's own files, as no registry is asked: Debian 13, with what that container trusts.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.hosts.incus import IncusProvider
from provisioner.values.state import Instance
from tests.integration.plain_machine import WITH_SSH
from tests.lab.incus import Lab

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
BUILD_S, SHORT_S = 1800, 300
TOOLS = ("ansible-builder==3.2.0", "ansible-navigator==26.10.0")
WITH_TOOLS = f"""
set -e
tar -c --one-file-system --exclude=./{{proc,sys,dev,run,base.tar}} -C / -f /base.tar .
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq -y --no-install-recommends install crun netavark nftables openssh-client podman python3-venv >/dev/null
python3 -m venv /opt/tools
/opt/tools/bin/pip --quiet install {" ".join(TOOLS)}
# An unprivileged container can make no groups of processes where its machine has cgroups v1.
printf '[containers]\\ncgroups = "disabled"\\n' > /etc/containers/containers.conf
podman import --quiet /base.tar docker.io/library/debian:13
rm /base.tar
mkdir /root/project
ssh-keygen -q -t ed25519 -N "" -f /root/project/key
"""
IMAGE = "localhost/provision-ee:latest"
NAVIGATOR = f"--mode stdout --ee true --eei {IMAGE} --pull-policy never --container-engine podman"
PLAY = """
- hosts: all
  roles: [provisioner.inference.base]
  tasks:
    - provisioner.inference.provision_paths: {paths: [/etc/os-release]}
      register: seen
    - ansible.builtin.assert: {that: "seen.paths['/etc/os-release'].exists"}
"""
LAB_FILE = """
name: home
hosts: { box: { incus: local } }
containers:
  llama: { services: { llama_cpp: { model: nobody } } }
"""
INVENTORY = "plugin: provisioner.inference.lab\nfile: homelab.yml\n"


class Box:
    """A container that the test made, in which a shell runs as root."""

    def __init__(self, provider: IncusProvider, name: str) -> None:
        self.provider, self.name = provider, name

    def sh(self, script: str, given: bytes = b"", within_s: float = SHORT_S, *, ok: bool = True) -> str:
        """What the shell prints."""
        words = f"export PODMAN_IGNORE_CGROUPSV1_WARNING=1 PATH=/opt/tools/bin:$PATH; {script}"
        done = self.provider.execute(self.name, ["bash", "-c", words], stdin=given, timeout_s=within_s)
        said = (done.stdout + done.stderr).decode(errors="replace")
        assert not ok or done.returncode == 0, said[-6000:]
        return said

    def write(self, name: str, text: str) -> None:
        """Write a file of the project."""
        self.sh(f"cat > /root/project/{name}", text.encode())


@pytest.fixture(scope="module")
def boxes(incus_lab: Lab) -> Iterator[dict[str, Box]]:
    """Where the image is built and used, and a machine that plays are for."""
    assert incus_lab
    provider = IncusProvider("box")
    mark = f"t{secrets.token_hex(4)}"
    made = {
        "builder": Instance(f"{mark}-builder", "box", "none", "debian/13", nesting=True),
        "plain": Instance(f"{mark}-plain", "box", "none", "debian/13"),
    }
    try:
        for one in made.values():
            provider.create(one)
            provider.start(one)
            provider.wait_until_ready(one)
        yield {name: Box(provider, one.name) for name, one in made.items()}
    finally:
        for one in made.values():
            provider.delete(one)


@pytest.fixture(scope="module")
def builder(boxes: dict[str, Box], tmp_path_factory: pytest.TempPathFactory) -> Box:
    """The container with the image, and a project whose plays are for the other one."""
    builder, plain = boxes["builder"], boxes["plain"]
    builder.sh(WITH_TOOLS, within_s=BUILD_S)
    folder = _definition(tmp_path_factory.mktemp("dist"))
    packed = subprocess.run(["tar", "-c", "-C", folder, "."], check=True, capture_output=True, timeout=60).stdout
    builder.sh("mkdir /root/definition && tar -x -C /root/definition", packed)
    build = f"cd /root/definition && ansible-builder build --verbosity 3 --container-runtime podman --tag {IMAGE}"
    builder.sh(build, within_s=BUILD_S)
    plain.sh(WITH_SSH, builder.sh("cat /root/project/key.pub").encode())
    address = plain.sh("hostname -I").split()[0]
    builder.write("known_hosts", f"{address} {plain.sh('cat /etc/ssh/ssh_host_ed25519_key.pub')}")
    said = (
        f"plain ansible_host={address} ansible_user=root ansible_ssh_private_key_file=/root/project/key "
        "ansible_ssh_common_args='-o UserKnownHostsFile=/root/project/known_hosts -o StrictHostKeyChecking=yes'\n"
    )
    for name, text in {"hosts": said, "site.yml": PLAY, "homelab.yml": LAB_FILE, "inventory.yml": INVENTORY}.items():
        builder.write(name, text)
    return builder


def _definition(made: Path) -> Path:
    """The folder that ``make execution-environment`` writes."""
    subprocess.run([sys.executable, ROOT / ".ci/collection.py", made], check=True, capture_output=True, timeout=120)
    wheel: list[str | Path] = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", made, ROOT]
    subprocess.run(wheel, check=True, capture_output=True, timeout=120)
    write: list[str | Path] = [sys.executable, ROOT / ".ci/execution_environment.py", made]
    subprocess.run(write, check=True, capture_output=True, timeout=60)
    return made / "execution-environment"


def test_the_image_holds_the_package_and_the_collection_of_one_version(builder: Box) -> None:
    version = builder.sh(f"podman run --rm {IMAGE} provision --version").split()[1]
    listed = builder.sh(f"podman run --rm {IMAGE} ansible-galaxy collection list --format json 2>/dev/null")
    (found,) = json.loads(listed[listed.index("{") :]).values()
    assert found == {"provisioner.inference": {"version": version}}
    assert "[core 2.21." in builder.sh(f"podman run --rm {IMAGE} ansible --version")
    assert builder.sh(f"podman run --rm {IMAGE} id -u").split() == ["1000"]


def test_a_play_runs_in_it_and_changes_nothing_the_second_time(builder: Box) -> None:
    for _ in range(2):
        said = builder.sh(f"cd /root/project && ansible-navigator run site.yml -i hosts --pae false {NAVIGATOR}")
        assert "provisioner.inference.base" in said
        recap = said[said.index("PLAY RECAP") :].splitlines()[1]
        words = dict(word.split("=") for word in recap.split(" : ")[1].split())
        assert (words["changed"], words["failed"], words["unreachable"]) == ("0", "0", "0"), said
        assert int(words["ok"]) > 3


def test_an_inventory_of_a_file_with_an_error_says_our_error(builder: Box) -> None:
    said = builder.sh(f"cd /root/project && ansible-navigator inventory -i inventory.yml --list {NAVIGATOR}", ok=False)
    assert "homelab.yml:5" in said, said
    assert "nobody" in said
