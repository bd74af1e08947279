"""``import`` from a double of Proxmox VE, by the whole command line: print, paste, plan gives only ``adopt``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.doubles.proxmox import Double
from tests.doubles.proxmox.fixture import pve
from tests.snapshots import case_name
from tests.unit.cli.conftest import Answer, provision

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

    def masked(*arguments: str) -> Answer:
        answer = provision(monkeypatch, *arguments)
        assert secret not in answer.out + answer.err
        return answer

    return masked


def planned(command: Command) -> list[tuple[str, str]]:
    answer = command("plan", "--json")  # whether it could be carried out without ssh is another question
    lines = [json.loads(line) for line in answer.out.splitlines()]
    return [(one["target"], one["action"]) for one in lines if one["type"] == "planned_change"]


@pytest.mark.parametrize("reference", ["pve1/105", "pve1/web"], ids=case_name)
def test_what_is_printed_can_be_pasted_and_only_adopts(  # noqa: PLR0917
    pve: Double, command: Command, head: str, tmp_path: Path, reference: str, snapshot: SnapshotAssertion
) -> None:
    disk = pve.world.storages["local-lvm"].allocate("pve1", 105, 4 * 2**30)
    guest = pve.world.add_guest(105, "pve1", **FOREIGN, mp0=f"{disk.volid},mp=/srv/data,size=4G,backup=1")
    pve.world.containers.start(105, guest.config)
    before = dict(guest.config)
    printed = command("import", reference)
    assert printed.code == 0, printed.err
    assert printed.printed == snapshot
    assert "hunter2" not in printed.out + printed.err
    (tmp_path / "homelab.yml").write_text(head + printed.out)
    assert planned(command) == [("web", "adopt")]
    assert guest.config == before, "nothing is touched"


def test_what_no_file_can_say_of_it_is_told(
    pve: Double, command: Command, head: str, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    pve.world.add_guest(
        105, "pve1", **{**FOREIGN, "swap": "0", "features": "keyctl=1,mount=nfs", "mp0": "/tank,mp=/nas"}
    )
    printed = command("import", "pve1/105")
    assert printed.code == 0, printed.err
    assert printed.printed == snapshot
    assert "hunter2" not in printed.out + printed.err
    (tmp_path / "homelab.yml").write_text(head + printed.out)
    assert command("validate").code == 0


BY_HAND = {
    "hostname": "ollama",
    "arch": "amd64",
    "cores": "8",
    "memory": "16384",
    "swap": "0",
    "ostype": "ubuntu",
    "unprivileged": "0",
    "onboot": "1",
    "startup": "order=3,up=20",
    "features": "nesting=1,keyctl=1",
    "net0": "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:10,ip=dhcp,rate=12,type=veth",
    "net1": "name=eth1,bridge=vmbr1,hwaddr=BC:24:11:00:00:13,ip=10.10.0.9/24,type=veth",
    "tags": "ai;gpu",
    "hookscript": "local:snippets/gpu-up.sh",
    "nameserver": "192.168.1.2",
    "cpuunits": "50",
    "cpulimit": "6",
}
RAW = [
    ["lxc.cgroup2.devices.allow", "c 195:* rwm"],
    ["lxc.mount.entry", "/dev/nvidia0 dev/nvidia0 none bind,optional,create=file"],
    ["lxc.idmap", "u 0 100000 1000"],
    ["lxc.apparmor.profile", "unconfined"],
    ["lxc.environment.runtime", "DB_PASSWORD=hunter2"],
    ["lxc.environment", "TOKEN=hunter2=x"],
]


def test_what_was_made_by_hand_and_has_no_word_is_told_line_by_line(
    pve: Double, command: Command, head: str, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """A container with a card by raw lines, as people have made them; the API gives those as pairs."""
    guest = pve.world.add_guest(110, "pve1", **BY_HAND)
    guest.config["lxc"] = RAW  # type: ignore[assignment]
    printed = command("import", "pve1/110")
    assert printed.code == 0, printed.err
    assert printed.printed == snapshot
    assert "hunter2" not in printed.out + printed.err
    (tmp_path / "homelab.yml").write_text(head + printed.out)
    assert command("validate").code == 0


def test_one_of_another_lab_and_one_that_is_not_there_are_refused(
    pve: Double, command: Command, snapshot: SnapshotAssertion
) -> None:
    block = {"lab": "other", "vmid": 106, "kind": "serving", "image": "debian/12", "nesting": False, "volumes": []}
    pve.world.add_guest(
        106,
        "pve1",
        hostname="theirs",
        tags="provisioner;provisioner-other",
        description=f"<!-- provisioner {json.dumps(block)} -->\n",
    )
    assert command("import", "pve1/106").ended(4) == snapshot
    assert command("import", "pve1/999").ended(4) == snapshot
