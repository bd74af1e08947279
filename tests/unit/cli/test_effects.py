"""What the drivers are told of a file's hosts."""

from __future__ import annotations

from pathlib import Path

from provisioner.cli.effects import providers_of
from provisioner.hosts.proxmox import ProxmoxProvider
from provisioner.hosts.proxmox.access import Direct
from provisioner.lab.opening import open_lab
from provisioner.values import paths
from tests.case_files import read_cases

CASES = read_cases("cli/effects")

FILE: str = CASES["file"]


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
