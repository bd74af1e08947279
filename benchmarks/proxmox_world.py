"""A Proxmox to be measured with: ``python -m benchmarks.proxmox_world FOLDER OWNED STRANGERS``.

Writes FOLDER/homelab.yml and what it needs, has our own driver make its containers (stopped), says so in one line, and
lives until its input ends. Each call then takes 10 ms before it is answered, as over a home's network to a busy node.
"""

from __future__ import annotations

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from provisioner.cli.effects import providers_of
from provisioner.hosts.proxmox.access import SSH_CONFIG
from provisioner.lab import desired_fleet
from provisioner.lab.opening import find_files, open_lab
from tests.doubles.proxmox import Double, double
from tests.doubles.proxmox.ssh_host import ssh_host
from tests.doubles.proxmox.world import World
from tests.lab.incus import Lab

NAME = "bench"
LATENCY_S = 0.01
ROOM = 1 << 50
"""Bytes of the storage: eleven hundred disks fit."""
STRANGER = 2000
"""The first number of those that are nobody's."""


def main(folder: Path, owned: int, strangers: int) -> None:
    """Make it, say so, and stay."""
    world = World(nodes=1)
    world.auth_delay_s = 0
    world.storages["local-lvm"].total = ROOM
    for number in range(strangers):
        world.add_guest(STRANGER + number, "pve1", tags="somebody")
    (folder / "lab").mkdir()
    (folder / "bin").mkdir()
    # There is nothing to be run inside: what the driver asks a shell of the node for are the artifacts that lie there.
    with double(world) as running, ssh_host(Lab(state=folder / "lab"), folder, folder / "bin", running.ca) as ssh:
        _write(running, folder, owned, ssh.destination)
        os.environ[SSH_CONFIG] = str(ssh.config)
        _create(folder / "homelab.yml")
        world.tell()
        world.latency_s = LATENCY_S
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.read()


def _write(running: Double, folder: Path, owned: int, ssh: str) -> None:
    secret = running.world.access.add_token("root@pam", "bench", privsep=False)
    shutil.copy(running.ca, folder / "ca.pem")
    secrets = folder / "secrets.env"
    secrets.touch(mode=0o600)
    secrets.write_text(f"token={secret}\n", encoding="ascii")
    host = {"proxmox": running.url, "user": "root@pam", "ca": "ca.pem", "storage": "local-lvm", "ssh": ssh}
    text = yaml.safe_dump({"name": NAME, "hosts": {"pve1": host}, "containers": {f"c{n}": {} for n in range(owned)}})
    login = "token: { id: bench, secret: !secret token }"
    (folder / "homelab.yml").write_text(
        text.replace("user: root@pam", f"user: root@pam\n    {login}"), encoding="ascii"
    )


def _create(file: Path) -> None:
    lab = open_lab(file)
    (provider,) = providers_of(lab).values()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(provider.create, desired_fleet(lab.resolved, find_files(lab).hashed(print).files).instances))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
