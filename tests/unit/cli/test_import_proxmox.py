"""``import`` from a double of Proxmox VE, by the whole command line: print, paste, plan gives only ``adopt``."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from provisioner.cli.app import run
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.fixture import pve
from tests.unit.cli.conftest import Answer

__all__ = ["pve"]

Command = Callable[..., Answer]
FOREIGN = {
    "hostname": "web",
    "cores": "2",
    "memory": "1024",
    "swap": "256",
    "net0": "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01,ip=192.168.1.50/24,gw=192.168.1.1,tag=20,type=veth",
    "features": "nesting=1",
    "description": "by hand\n",
    "tags": "mine",
}


@pytest.fixture
def head(pve: Double) -> str:
    """A file without containers, whose host is the double's first node."""
    return (
        f"name: homelab\nhosts:\n  pve1:\n    proxmox: {pve.url}\n    user: root@pam\n"
        f"    token: {{ id: ci, secret: !secret pve_token }}\n    ca: {pve.ca}\ncontainers:\n"
    )


@pytest.fixture
def command(pve: Double, head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs ``provision`` in a folder with that file."""
    monkeypatch.chdir(tmp_path)
    secret = pve.world.access.add_token("root@pam", "ci", privsep=False)
    monkeypatch.setenv("PROVISION_SECRET_PVE_TOKEN", secret)
    (tmp_path / "homelab.yml").write_text(head + "  other: {}\n")

    def provision(*arguments: str) -> Answer:
        out, err = io.StringIO(), io.StringIO()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = run(arguments)
        assert secret not in out.getvalue() + err.getvalue()
        return Answer(code, out.getvalue(), err.getvalue())

    return provision


def planned(command: Command) -> list[tuple[str, str]]:
    answer = command("plan", "--json")  # whether it could be carried out without ssh is another question
    lines = [json.loads(line) for line in answer.out.splitlines()]
    return [(one["target"], one["action"]) for one in lines if one["type"] == "planned_change"]


@pytest.mark.parametrize("reference", ["pve1/105", "pve1/web"])
def test_what_is_printed_can_be_pasted_and_only_adopts(
    pve: Double, command: Command, head: str, tmp_path: Path, reference: str
) -> None:
    disk = pve.world.storages["local-lvm"].allocate("pve1", 105, 4 * 2**30)
    guest = pve.world.add_guest(105, "pve1", **FOREIGN, mp0=f"{disk.volid},mp=/srv/data,size=4G,backup=1")
    pve.world.containers.start(105, guest.config)
    before = dict(guest.config)
    printed = command("import", reference)
    assert printed.code == 0, printed.err
    written = yaml.safe_load(printed.out)["web"]
    assert (written["cpu"], written["memory"], written["disk"], written["adopt"]) == (2, "1GiB", "8GiB", True)
    block = written["proxmox"]
    assert (block["vmid"], block["swap"], block["onboot"], block["tags"]) == (105, "256MiB", False, ["mine"])
    assert block["network"] == {"ip": "192.168.1.50/24", "gateway": "192.168.1.1", "vlan": 20}
    assert block["mounts"][0]["path"] == "/srv/data"
    assert "# Its image is not known" in printed.out
    (tmp_path / "homelab.yml").write_text(head + printed.out)
    assert planned(command) == [("web", "adopt")]
    assert guest.config == before, "nothing is touched"


def test_what_no_file_can_say_of_it_is_told(pve: Double, command: Command, head: str, tmp_path: Path) -> None:
    pve.world.add_guest(
        105, "pve1", **{**FOREIGN, "swap": "0", "features": "keyctl=1,mount=nfs", "mp0": "/tank,mp=/nas"}
    )
    printed = command("import", "pve1/105")
    assert printed.code == 0, printed.err
    comments = " ".join(line for line in printed.out.splitlines() if line.startswith("  #"))
    for words in ("mount=nfs", "No snapshot holds all of it", "/nas"):
        assert words in comments, printed.out
    assert "swap: 0" in printed.out
    (tmp_path / "homelab.yml").write_text(head + printed.out)
    assert command("validate").code == 0


def test_one_of_another_lab_and_one_that_is_not_there_are_refused(pve: Double, command: Command) -> None:
    block = {"lab": "other", "vmid": 106, "kind": "serving", "image": "debian/12", "nesting": False, "volumes": []}
    pve.world.add_guest(
        106,
        "pve1",
        hostname="theirs",
        tags="provisioner;provisioner-other",
        description=f"<!-- provisioner {json.dumps(block)} -->\n",
    )
    refused = command("import", "pve1/106")
    assert refused.code == 4
    assert "it bears the mark of lab other" in refused.err
    missing = command("import", "pve1/999")
    assert missing.code == 4
    assert "Containers there: theirs" in missing.err
