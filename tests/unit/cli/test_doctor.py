"""The verb ``doctor``: a line for each thing that was looked at, what to do about what is wrong, and 0 or 3."""

from __future__ import annotations

import json
import socket
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pytest

from provisioner.cli import host
from provisioner.cli.app import run
from provisioner.doctor.hosts import SCRIPT
from provisioner.hosts.fake import Container, FakeProvider
from provisioner.values.errors import ProviderError
from provisioner.values.host_facts import HostAnswers, HostFact, MachineState, Pool, StorageRoom
from provisioner.values.state import Execution, Fleet
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.fixture import pve
from tests.doubles.proxmox.world import PASSWORD
from tests.snapshots import case_name
from tests.unit.cli.conftest import ENGINE_KEY, FILE, GATEWAY_KEY, World

__all__ = ["pve"]

WELL = HostAnswers("box")
FULL = StorageRoom("box", "tank", "disks", free=1, total=2**40)


class Looked(FakeProvider):
    """A host of which something is known."""

    def __init__(self, *facts: HostFact) -> None:
        super().__init__("box")
        self.facts = facts
        self.asked: list[frozenset[str]] = []

    def examine(self, images: Collection[str], lab: str) -> tuple[HostFact, ...]:
        """What is known."""
        assert lab == "homelab"
        self.asked.append(frozenset(images))
        return self.facts


def test_a_healthy_host(world: World) -> None:
    world.host = Looked(WELL)
    assert world.command("doctor").ended(0) == world.snapshot
    assert world.host.asked == [frozenset({"debian/12"})]


def test_what_is_in_the_way_exits_3_and_says_what_to_do(world: World) -> None:
    world.host = Looked(WELL, FULL)
    assert world.command("doctor").ended(3) == world.snapshot


def test_the_stream(world: World) -> None:
    world.host = Looked(WELL, FULL)
    answer = world.command("doctor", "--json")
    assert answer.code == 3
    assert [one["type"] for one in answer.events] == ["version", "check", "check", "diagnostic", "summary"]
    assert [(one["name"], one["ok"]) for one in answer.of("check")] == [("answers", True), ("storage", False)]
    assert answer.of("diagnostic")[0]["resolution"]
    assert answer.of("summary")[0] == {**answer.of("summary")[0], "verb": "doctor", "exit_code": 3}


DOOR = """\
  door:
    services:
      door: { EXPOSE, authority: !secret authority, sites: { api.home.example: gateway/litellm } }
"""
NAMES: dict[str, list[str]] = {}
NOWHERE = "Name or service not known"


@pytest.fixture
def door(world: World, lab: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A healthy host at 192.168.1.5 with the usual lab and a door, and names that lead to what ``NAMES`` says."""

    def look_up(name: str, *_words: object, **_further: object) -> list[tuple[object, ...]]:
        if name not in NAMES:
            raise socket.gaierror(socket.EAI_NONAME, NOWHERE)
        return [(0, 0, 0, "", (address, 0)) for address in NAMES[name]]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setenv("PROVISION_SECRET_AUTHORITY", "an-authority-of-the-lab")
    NAMES.clear()
    world.host = Looked(WELL)
    text = FILE.replace("incus: local", "incus: local, address: 192.168.1.5")
    lab.write_text(text + DOOR.replace("EXPOSE", "expose: lan"))
    return world


@pytest.mark.parametrize(
    ("code", "addresses"),
    [
        (0, "192.168.1.5"),
        (0, "127.0.0.1"),
        (0, "192.168.1.5 127.0.0.1"),
        (3, ""),
        (3, "203.0.113.9"),
        (3, "192.168.1.5 ::1"),
    ],
    ids=case_name,
)
def test_a_site_that_leads_elsewhere_is_told_with_the_line_that_is_missing(
    door: World, code: int, addresses: str
) -> None:
    if addresses:
        NAMES["api.home.example"] = addresses.split()
    assert door.command("doctor").ended(code) == door.snapshot


def test_a_door_that_its_host_alone_reaches_is_at_its_own_address(door: World, lab: Path) -> None:
    lab.write_text(FILE + DOOR.replace("EXPOSE", "expose: host"))
    NAMES["api.home.example"] = ["127.0.0.1"]
    assert door.command("doctor").ended(0) == door.snapshot
    door.command("up", "--yes")  # this host proves nothing, and its containers run
    address = door.host.containers["door"].instance.address
    assert door.command("doctor").printed == door.snapshot
    NAMES["api.home.example"] = [str(address)]
    assert door.command("doctor").code == 0


def test_it_takes_a_file_and_no_containers(world: World) -> None:
    assert world.command("doctor", "llama").code == 64
    assert world.command("doctor", "none.yml").code == 64


@pytest.mark.parametrize("as_json", [False, True])
def test_a_proxmox_host_of_a_file(
    lab: Path, pve: Double, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, as_json: bool
) -> None:
    secret = pve.world.access.add_token("root@pam", "lab", privsep=False)
    monkeypatch.setenv("PROVISION_SECRET_PVE_TOKEN", secret)
    host = f'{{ proxmox: "{pve.url}", user: root@pam, token: {{ id: lab, secret: !secret pve_token }}, ca: {pve.ca} }}'
    lab.write_text(f"name: homelab\nhosts:\n  pve1: {host}\ncontainers:\n  web: {{ image: plan9/4, services: {{}} }}\n")
    assert run(["doctor", *(["--json"] if as_json else [])]) == 3
    captured = capsys.readouterr()
    said = captured.out + captured.err
    for value in (secret, PASSWORD + "!", ENGINE_KEY, GATEWAY_KEY):
        assert value not in said
    if as_json:
        lines = [json.loads(line) for line in captured.out.splitlines()]
        bad = [one["name"] for one in lines if one["type"] == "check" and not one["ok"]]
    else:
        assert "ok   pve1: version: Proxmox VE 9.2.11" in said
        bad = [line.split(": ")[1] for line in said.splitlines()[:12] if line.startswith("FAIL")]
    assert bad == ["image", "ssh"]


SIZES = FILE.replace("  llama:\n", "  llama:\n    memory: 900GiB\n    disk: 90TiB\n").replace(
    "tiny,", "tiny, expose: lan,"
)


def test_what_a_host_has_no_room_for_is_told(world: World, lab: Path) -> None:
    lab.write_text(SIZES)
    world.host.memory, world.host.pool = 24 * 2**30, Pool("tank", 30 * 2**30, 20 * 2**30)
    world.host.published = {("tcp", 8080): "container web of lab other"}
    assert world.command("doctor").ended(3) == world.snapshot
    lab.write_text(SIZES.replace("900GiB", "9GiB").replace("90TiB", "25GiB"))
    world.host.published = {}
    assert world.command("doctor").ended(0) == world.snapshot
    world.host.pool = Pool("tank", 40 * 2**30, 40 * 2**30)
    assert world.command("doctor").ended(0) == world.snapshot
    world.done("up", "--yes")
    assert "ok   box: memory: it has" in world.command("doctor").out


def test_without_a_file_this_machine_alone_is_looked_at(world: World, lab: Path) -> None:
    lab.unlink()
    world.monkeypatch.setattr(host, "here", Machine)
    answer = world.command("doctor")
    assert answer.ended(3) == world.snapshot
    assert world.command("doctor", str(lab)).code == 64, "a file that is named has to be there"


class Machine(Looked):
    """This machine, with no IDs for containers and a proxy of which they are not told."""

    def __init__(self) -> None:
        super().__init__(
            MachineState("this machine", "ids", "", "root has none", "Run: true"),
            MachineState("this machine", "proxy", "it uses a proxy", warning="Run: true"),
        )

    def examine(self, images: Collection[str], lab: str) -> tuple[HostFact, ...]:
        """What is known, of no lab."""
        assert (images, lab) == (frozenset(), "")
        return self.facts


def test_how_far_the_first_container_gets_is_told_once(world: World) -> None:
    def program(_c: Container, command: Sequence[str], _in: bytes, environment: Mapping[str, str]) -> Execution:
        assert command[-1] == SCRIPT
        return Execution(0, b"way cut packages.example\nlists none\n" if environment else b"lists none\n", b"")

    world.done("up", "--yes")
    world.host.programs["sh"] = program
    assert world.command("doctor").ended(3) == world.snapshot


def test_of_models_that_nobody_can_ask_for_the_rest_is_told(
    world: World, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    lab.write_text(FILE.replace("builtin:tiny", "hf:org/repo:Q4_0"))
    world.host = Looked(WELL)
    answer = world.command("doctor")
    assert answer.code == 3
    assert "ok   box: answers" in answer.out
    assert "Unable to find out which file model tiny is (hf:org/repo:Q4_0)" in answer.out


def test_a_host_that_does_not_let_us_look_at_its_containers_ends_no_diagnosis(world: World) -> None:
    def refuses(_lab: str, **_options: object) -> Fleet:
        raise ProviderError("Unable to list the containers of box", details="403 Forbidden")

    world.monkeypatch.setattr(world.host, "observe", refuses)
    assert "foresee" not in world.command("doctor").printed
