"""``gpu:`` from the command line: what is planned, what is refused with nothing touched, what happens afterwards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from provisioner.gpus.cards import Card
from provisioner.reconcile.runner import TaskEvent
from tests.graphics_cards import RTX_3060
from tests.unit.cli.conftest import World

OTHER = replace(RTX_3060, pci="0000:02:00.0", name="RTX 3050", memory=8 * 2**30)


@pytest.fixture(autouse=True)
def wants_a_card(lab: Path) -> None:
    lab.write_text(lab.read_text().replace("  llama:\n", "  llama:\n    gpu: any\n"))


def test_the_card_is_planned_attached_and_then_nothing_is_left_to_do(world: World) -> None:
    world.host.cards.there = (RTX_3060,)
    assert world.command("plan").printed == world.snapshot
    assert world.command("up", "--yes").code == 0
    devices = {one.name: one.properties for one in world.host.containers["llama"].instance.devices}
    assert devices["gpu"]["pci"] == RTX_3060.pci
    assert world.command("plan", "--detailed-exitcode").code == 0


def test_another_driver_on_the_host_runs_the_role_again_and_says_so(world: World) -> None:
    world.host.cards.there = (RTX_3060,)
    assert world.command("up", "--yes").code == 0
    world.host.cards.there = (replace(RTX_3060, driver_version="590.48.01"),)
    assert world.command("plan").printed == world.snapshot
    assert world.command("plan", "--detailed-exitcode").code == 2


@pytest.mark.parametrize(
    ("graphics", "gpu"),
    [
        ((), "any"),
        ((RTX_3060, OTHER), "any"),
        ((RTX_3060,), '{ pci: "0000:09:00.0" }'),
        ((replace(RTX_3060, driver="vfio-pci"),), "any"),
        ((replace(RTX_3060, missing=("/dev/nvidia-uvm",)),), "any"),
        ((RTX_3060,), "{ vram: 24GiB }"),
    ],
    ids=["none", "two", "no such", "of a machine", "half a driver", "too small"],
)
def test_a_card_that_cannot_be_had_is_refused_with_its_line_and_nothing_touched(
    world: World, lab: Path, graphics: tuple[Card, ...], gpu: str
) -> None:
    world.host.cards.there = graphics
    lab.write_text(lab.read_text().replace("gpu: any", f"gpu: {gpu}"))
    assert world.command("plan").ended(4) == world.snapshot
    assert world.command("up", "--yes").code == 4
    assert world.host.containers == {}


def test_a_card_that_two_want_alone_is_refused(world: World, lab: Path) -> None:
    world.host.cards.there = (RTX_3060,)
    own = "gpu: { vendor: nvidia, sharing: exclusive }"
    text = lab.read_text().replace("gpu: any", own).replace("  gateway:\n", f"  gateway:\n    {own}\n")
    lab.write_text(text)
    assert world.command("plan").ended(4) == world.snapshot


def test_what_the_proof_measured_stands_beside_the_next_sum(world: World) -> None:
    world.host.cards.there = (RTX_3060,)
    world.measured = {"llama/llama_cpp": {"device_memory": 900 * 2**20}}
    assert "measured" not in world.command("fit").out
    assert world.command("up", "--yes").code == 0
    assert world.command("fit").printed == world.snapshot


def test_status_and_verify_say_of_a_card_that_is_gone(world: World) -> None:
    world.host.cards.there = (RTX_3060,)
    assert world.command("up", "--yes").code == 0
    world.host.cards.there = ()
    assert world.command("status").ended(0) == world.snapshot
    assert world.command("verify").ended(3) == world.snapshot
    assert ("verify.yml", "service_llama_cpp/llama") not in [
        (name, host) for name, hosts in world.played[-1:] for host in hosts
    ]


def test_a_device_that_is_not_there_is_a_failed_proof_though_the_engine_was_not_started(world: World) -> None:
    world.host.cards.there = (RTX_3060,)
    refused = TaskEvent("failed", "llama", "llama_cpp", "llama_cpp : device | Refuse to compute on the CPU", "no CUDA0")
    world.failures = {"site.yml": (refused,)}
    answer = world.command("up", "--yes")
    assert answer.code == 3
    assert answer.after_plan == world.snapshot
