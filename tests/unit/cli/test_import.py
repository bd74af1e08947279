"""``import``: print, paste, plan gives only ``adopt``; what no file can say is told above the block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.hosts.fake import Container
from provisioner.values.state import Execution, Instance, Status
from tests.case_files import read_cases
from tests.snapshots import case_name
from tests.unit.cli.conftest import World

CASES = read_cases("cli/import")

INCUS = "name: homelab\nhosts:\n  box: { incus: local }\ncontainers:\n"
PROXMOX: str = CASES["proxmox"]
BY_HAND = Instance("web", "box", "", "", cpu=2, memory=2**30, disk=8 * 2**30, status=Status.RUNNING)
SETTINGS: dict[str, Any] = {
    "vmid": 105,
    "storage": "local-zfs",
    "swap": 2**30,
    "network": {
        "bridge": "vmbr1",
        "ip": "192.168.1.50/24",
        "gateway": "192.168.1.1",
        "vlan": 20,
        "firewall": True,
        "mac": "BC:24:11:00:00:01",
    },
    "features": ("fuse", "keyctl", "nesting"),
    "devices": ({"path": "/dev/dri/renderD128", "mode": "0660", "uid": 0, "gid": 104},),
    "mounts": ({"path": "/srv/data", "size": 5 * 2**30, "storage": "local-zfs", "backup": True},),
    "unprivileged": True,
    "onboot": False,
    "order": 3,
    "pool": "lab",
    "tags": ("1e3", "web"),
    "description": "mine: since 2019\n# not a comment",
    "protection": True,
}


def put(world: World, one: Instance) -> None:
    world.host.containers[one.name] = Container(one)


def runs(os_release: str) -> Any:
    def cat(_box: Container, _command: Sequence[str], _stdin: bytes, _environment: Mapping[str, str]) -> Execution:
        return Execution(0, os_release.encode(), b"")

    return cat


@pytest.fixture
def by_hand(world: World, lab: Path) -> World:
    lab.write_text(INCUS + "  other: {}\n")
    world.host.programs["cat"] = runs('PRETTY_NAME="Debian"\nVERSION_ID="12"\nID=debian\n')
    put(world, BY_HAND)
    return world


def paste(world: World, lab: Path, head: str, reference: str) -> list[tuple[str, str]]:
    """Print, paste, plan: the planned changes."""
    printed = world.done("import", reference)
    lab.write_text(head + printed.out)
    planned = world.done("plan", "--json")
    return [(one["target"], one["action"]) for one in planned.of("planned_change")]


@pytest.mark.parametrize(("memory", "disk"), [(2**30, 8 * 2**30), (10**9, 10**10)])
def test_the_block_can_be_pasted_and_only_adopts(by_hand: World, lab: Path, memory: int, disk: int) -> None:
    there = replace(BY_HAND, memory=memory, disk=disk)
    put(by_hand, there)
    assert by_hand.command("import", "box/web").printed == by_hand.snapshot
    assert paste(by_hand, lab, INCUS, "box/web") == [("web", "adopt")]
    assert by_hand.host.containers["web"].instance == there, "nothing is touched"


def test_a_container_of_proxmox_comes_with_what_only_proxmox_knows(by_hand: World, lab: Path) -> None:
    lab.write_text(PROXMOX + "  other: {}\n")
    put(by_hand, replace(BY_HAND, settings=SETTINGS))
    assert by_hand.command("import", "box/web").printed == by_hand.snapshot
    assert paste(by_hand, lab, PROXMOX, "box/web") == [("web", "adopt")]


def test_what_no_file_can_say_is_told_with_what_up_would_make_of_it(by_hand: World, lab: Path) -> None:
    lab.write_text(PROXMOX + "  other: {}\n")
    mounts = ({"path": "/mnt/nas", "source": "/tank"}, *SETTINGS["mounts"])
    put(by_hand, replace(BY_HAND, settings={**SETTINGS, "features": ("mount=nfs",), "mounts": mounts, "pool": ""}))
    assert by_hand.command("import", "box/web").printed == by_hand.snapshot
    assert paste(by_hand, lab, PROXMOX, "box/web") == [("web", "adopt"), ("web", "update")]


@pytest.mark.parametrize("status", [Status.STOPPED, Status.RUNNING])
def test_an_image_that_nobody_knows_is_to_be_filled_in(by_hand: World, lab: Path, status: Status) -> None:
    by_hand.host.programs["cat"] = runs("ID=nixos\n")
    put(by_hand, replace(BY_HAND, status=status))
    answer = by_hand.command("import", "box/web")
    assert answer.printed == by_hand.snapshot
    assert "image:" not in answer.out.replace("# Its image", "")
    assert ("web", "adopt") in paste(by_hand, lab, INCUS, "box/web")


def test_one_in_which_nothing_can_be_run_is_printed_all_the_same(by_hand: World) -> None:
    del by_hand.host.programs["cat"]
    assert by_hand.command("import", "box/web").ended(0) == by_hand.snapshot


def test_as_data(by_hand: World) -> None:
    (result,) = by_hand.command("import", "box/web", "--json").of("result")
    assert result["name"] == "web"
    assert result["container"]["adopt"] is True
    assert result["container"]["memory"] == "1GiB"
    assert result["changes"] == {}
    assert yaml.safe_load(result["yaml"]) == {"web": result["container"]}


def test_one_of_this_lab_needs_no_adoption(by_hand: World, lab: Path) -> None:
    put(by_hand, replace(BY_HAND, lab="homelab", image="debian/12"))
    assert by_hand.command("import", "box/web").printed == by_hand.snapshot
    assert paste(by_hand, lab, INCUS, "box/web") == [("web/base", "configure")], "it was never configured by us"


def test_a_name_of_the_file_is_told(by_hand: World, lab: Path) -> None:
    lab.write_text(INCUS + "  web: {}\n")
    assert by_hand.command("import", "box/web").printed == by_hand.snapshot


@pytest.mark.parametrize(
    ("code", "line"),
    [(4, "box/nosuch"), (64, "pve9/web"), (64, "web"), (64, ""), (64, "box/web box/other")],
    ids=case_name,
)
def test_what_is_not_there_is_refused(by_hand: World, code: int, line: str) -> None:
    assert by_hand.command("import", *line.split()).ended(code) == by_hand.snapshot


def test_one_of_another_lab_is_refused(by_hand: World) -> None:
    put(by_hand, replace(BY_HAND, lab="other"))
    assert by_hand.command("import", "box/web").ended(4) == by_hand.snapshot


@pytest.mark.parametrize("name", ["web.lan", "9web", "provision-web", "web\n# x"], ids=["a dot", "9", "ours", "lines"])
def test_a_name_that_no_file_can_have_is_refused(by_hand: World, name: str) -> None:
    put(by_hand, replace(BY_HAND, name=name))
    assert by_hand.command("import", f"box/{name}").ended(4) == by_hand.snapshot


def test_hosts_are_completed(lab: Path) -> None:
    import click

    from provisioner.cli.import_ import import_
    from provisioner.cli.options import complete_hosts

    context = click.Context(import_)
    assert [one.value for one in complete_hosts(context, import_.params[0], "b")][:1] == ["box/"]
    lab.write_text("name: x\ncontainers: {}\n")
    assert [one.value for one in complete_hosts(context, import_.params[0], "")][:1] == ["local/"]
