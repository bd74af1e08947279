"""What the drivers are told of a file's hosts."""

from __future__ import annotations

from pathlib import Path

from provisioner.cli.effects import providers_of
from provisioner.lab.opening import open_lab
from provisioner.providers.proxmox import ProxmoxProvider
from provisioner.providers.proxmox.access import Direct
from provisioner.values import paths

FILE = """\
name: homelab
hosts:
  box: { incus: local }
  pve1:
    { proxmox: "https://pve1:8006", user: root@pam, password: !secret pve, transport: ssh, ssh_key: keys/mine }
  pve2: { proxmox: "https://pve2:8006", user: root@pam, password: !secret pve }
  pve3: { proxmox: "https://pve3:8006", user: root@pam, password: !secret pve }
containers:
  near: { host: box }
  usual: { host: pve1 }
  through: { host: pve1, proxmox: { transport: jump } }
  by-node: { host: pve1, proxmox: { transport: pct } }
  other: { host: pve2 }
  asked: { host: pve3, proxmox: { transport: ssh } }
"""


def test_a_driver_knows_whose_own_sshd_is_used_and_by_which_key(tmp_path: Path) -> None:
    file = tmp_path / "homelab.yml"
    file.write_text(FILE, encoding="utf-8")
    made = providers_of(open_lab(file, needs="none"))
    told = {name: one.access.direct for name, one in made.items() if isinstance(one, ProxmoxProvider)}
    folder = paths.state("homelab") / "ssh"  # not beside the file, where git might take up a key
    assert told == {
        "pve1": Direct(folder, {"usual": "ssh", "through": "jump"}, tmp_path / "keys/mine"),
        "pve2": None,
        "pve3": Direct(folder, {"asked": "ssh"}),
    }
