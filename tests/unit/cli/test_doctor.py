"""The verb ``doctor``: a line for each thing that was looked at, what to do about what is wrong, and 0 or 3."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import pytest

from provisioner.cli.app import run
from provisioner.providers.fake import FakeProvider
from provisioner.values.host_facts import HostAnswers, HostFact, StorageRoom
from tests.lab.pve import Double
from tests.lab.pve.fixture import pve
from tests.lab.pve.world import PASSWORD
from tests.unit.cli.conftest import ENGINE_KEY, GATEWAY_KEY, World

__all__ = ["pve"]

WELL = HostAnswers("box")
FULL = StorageRoom("box", "tank", "disks", free=1, total=2**40)


class Looked(FakeProvider):
    """A host of which something is known."""

    def __init__(self, *facts: HostFact) -> None:
        super().__init__("box")
        self.facts = facts
        self.asked: list[frozenset[str]] = []

    def examine(self, images: Collection[str]) -> tuple[HostFact, ...]:
        """What is known."""
        self.asked.append(frozenset(images))
        return self.facts


def test_a_healthy_host(world: World) -> None:
    world.host = Looked(WELL)
    answer = world.command("doctor")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines() == ["ok   box: answers: it answers", "Healthy: nothing is in the way of this lab."]
    assert world.host.asked == [frozenset({"debian/12"})]


def test_what_is_in_the_way_exits_3_and_says_what_to_do(world: World) -> None:
    world.host = Looked(WELL, FULL)
    answer = world.command("doctor")
    assert answer.code == 3
    lines = answer.out.splitlines()
    assert lines[0] == "ok   box: answers: it answers"
    assert lines[1] == "FAIL box: storage: tank for disks: 0.0 of 1024.0 GiB free: that is little"
    assert lines[2:4] == ["", "FAIL box: storage: tank for disks: 0.0 of 1024.0 GiB free: that is little"]
    assert lines[4].startswith("  What to do: ")
    assert lines[-1] == "1 finding."


def test_the_stream(world: World) -> None:
    world.host = Looked(WELL, FULL)
    answer = world.command("doctor", "--json")
    assert answer.code == 3
    assert [one["type"] for one in answer.events] == ["version", "check", "check", "diagnostic", "summary"]
    assert [(one["name"], one["ok"]) for one in answer.of("check")] == [("answers", True), ("storage", False)]
    assert answer.of("diagnostic")[0]["resolution"]
    assert answer.of("summary")[0] == {**answer.of("summary")[0], "verb": "doctor", "exit_code": 3}


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
