"""What is built for containers on Proxmox is made in the network of one that asks DHCP, if there is one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from provisioner.lab import desired_fleet
from provisioner.lab.artifacts import dhcp_doubts
from provisioner.lab.opening import Lab, find_files, open_lab
from provisioner.values.errors import InputError

FILE = """\
name: lab
hosts:
  pve: {{ proxmox: "https://192.0.2.1:8006", user: root@pam, password: !secret root, bridge: vmbr1{build} }}
models: {{ m: {{ source: "builtin:tiny" }} }}
containers:
  a: {{ proxmox: {{ network: {first} }}, services: {{ llama_cpp: {{ model: m }} }} }}
  b: {{ proxmox: {{ network: {second} }}, services: {{ llama_cpp: {{ model: m }} }} }}
"""
ONE = "{ ip: 192.0.2.9/24, gateway: 192.0.2.254, vlan: 20 }"
OTHER = ONE.replace(".9/", ".10/")
ASKS = "{ vlan: 30 }"
PLAIN = {"bridge": "vmbr1", "ip": "dhcp", "firewall": False}
DOUBT = "llama_cpp, model-m: made in containers that ask DHCP on vmbr1 with VLAN 20, where b has a fixed address"


Opened = Callable[[str, str, str], Lab]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Opens the file with these words."""
    monkeypatch.setenv("PROVISION_SECRET_ROOT", "a-value-of-many-letters")

    def lab(build: str, first: str, second: str) -> Lab:
        file = tmp_path / "homelab.yml"
        file.write_text(FILE.format(build=build, first=first, second=second), encoding="utf-8")
        return open_lab(file)

    return lab


@pytest.mark.parametrize(
    ("words", "card", "doubts", "address"),
    [
        (("", "{}", "{}"), PLAIN, [], ""),
        (("", ASKS, OTHER), {**PLAIN, "vlan": 30}, [], ""),
        (("", ONE, ASKS), {**PLAIN, "vlan": 30}, [], ""),
        (("", ONE, OTHER), {**PLAIN, "vlan": 20}, [DOUBT], ""),
        ((", build: { network: {} }", ONE, OTHER), PLAIN, [], ""),
        (
            (", build: { network: { bridge: vmbr2, ip: 192.0.2.7/24 } }", ASKS, OTHER),
            {"bridge": "vmbr2", "ip": "192.0.2.7/24", "firewall": False},
            [],
            "192.0.2.7/24",
        ),
    ],
    ids=["asks", "first asks", "second asks", "none asks", "build asks", "build is fixed"],
)
def test_builders_have_the_card_that_the_file_says(
    words: tuple[str, str, str], card: dict[str, object], doubts: list[str], address: str, opened: Opened
) -> None:
    lab = opened(*words)
    artifacts = desired_fleet(lab.resolved, find_files(lab).files).artifacts
    assert [artifact.name for artifact in artifacts] == ["llama_cpp", "model-m"]
    assert [artifact.builder_settings["network"] for artifact in artifacts] == [card, card]
    assert dhcp_doubts(artifacts) == doubts
    assert {artifact.builder_address for artifact in artifacts} == {address}


def test_their_address_is_no_container_s(opened: Opened) -> None:
    with pytest.raises(InputError) as refused:
        opened(", build: { network: { ip: 192.0.2.10/24 } }", ONE, OTHER)
    assert "containers.b.proxmox.network: 192.0.2.10 is for what is built on host pve" in refused.value.details
