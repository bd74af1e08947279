"""A lab on Proxmox whose network has no DHCP: what is built there and copies get the addresses that the file says."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.hosts.fake import FakeProvider
from tests.case_files import read_cases
from tests.unit.cli.conftest import World

CASES = read_cases("cli/fixed_addresses")
FILE: str = CASES["file"]
BUILD: str = CASES["build"]
CLONE = ("clone", "llama", "trial", "--set", "services.llama_cpp.parallel=2", "--yes")
OF_ITS_OWN = ("--set", "proxmox.network.ip=192.0.2.60/24")


@pytest.fixture
def node(world: World, monkeypatch: pytest.MonkeyPatch) -> FakeProvider:
    Path("homelab.yml").write_text(FILE.format(build=BUILD), encoding="utf-8")
    monkeypatch.setenv("PROVISION_SECRET_PVE", "secret-of-root")
    world.host.dhcp = False
    return world.host


def test_what_is_built_gets_the_address_for_it_and_one_at_a_time_has_that(world: World, node: FakeProvider) -> None:
    beside: list[list[str]] = []
    world.then = lambda: beside.append([name for name in node.containers if name.startswith("provision-build-")])
    world.done("up", "--yes")
    assert [len(names) for names in beside if names] == [1, 1, 1], "the program and two models"
    assert set(node.containers) == {"llama", "spare"}


def test_without_such_an_address_nobody_answers_what_is_built(world: World, node: FakeProvider) -> None:
    Path("homelab.yml").write_text(FILE.format(build=""), encoding="utf-8")
    assert world.command("up", "--yes").code == 1
    assert node.containers == {}


@pytest.mark.usefixtures("node")
def test_doctor_says_where_it_is_not_known_whether_somebody_answers_them(world: World) -> None:
    doubt = "made in containers that ask DHCP on vmbr0 with VLAN 20, where spare has a fixed address"
    assert doubt not in world.command("doctor").printed
    Path("homelab.yml").write_text(FILE.format(build=""), encoding="utf-8")
    assert doubt in world.command("doctor").printed


def test_a_copy_has_its_own_address_before_it_is_started(world: World, node: FakeProvider) -> None:
    world.done("up", "--yes")
    assert world.command(*CLONE).ended(4) == world.snapshot
    assert set(node.containers) == {"llama", "spare"}
    world.done(*CLONE, *OF_ITS_OWN)
    network = node.containers["trial"].instance.settings["network"]
    assert (network["ip"], network["gateway"]) == ("192.0.2.60/24", "192.0.2.1")


def test_a_copy_that_is_to_ask_dhcp_has_no_gateway(world: World, node: FakeProvider) -> None:
    Path("homelab.yml").write_text(FILE.format(build=""), encoding="utf-8")
    node.dhcp = True
    world.done("up", "--yes")
    world.done(*CLONE, "--set", "proxmox.network.ip=dhcp")
    network = node.containers["trial"].instance.settings["network"]
    assert (network["ip"], network.get("gateway")) == ("dhcp", None)
