"""Why a card cannot be computed with: states as programs describe them, and nodes as a member of a group finds them."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest

from provisioner.ansible.modules.provision_gpu_proof import (
    Verdict,
    answer_in,
    group_ids,
    judge_cuda,
    judge_nodes,
    judge_vulkan,
    opened,
    vulkan_devices,
)

CARD = "GPU 0: NVIDIA GeForce RTX 3060 (UUID: GPU-00000000-1111-2222-3333-444444444444)\n"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.261\n"
UNREACHED = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
    "driver is installed and running.\n\n"
)
LLVMPIPE = """\
Devices:
========
GPU0:
\tapiVersion         = 1.4.305
\tvendorID           = 0x10005
\tdeviceType         = PHYSICAL_DEVICE_TYPE_CPU
\tdeviceName         = llvmpipe (LLVM 19.1.7, 256 bits)
\tdriverName         = llvmpipe
"""
RADEON = """\
GPU1:
\tapiVersion         = 1.4.305
\tvendorID           = 0x1002
\tdeviceType         = PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU
\tdeviceName         = AMD Radeon 780M (RADV PHOENIX)
\tdriverName         = radv
"""
RIGHT = {"code": 0, "count": 1}


def test_a_card_that_both_answer_is_proved() -> None:
    assert judge_cuda(CARD, RIGHT) == Verdict(found=("NVIDIA GeForce RTX 3060",))


@pytest.mark.parametrize(
    ("listed", "answer", "problem", "advice"),
    [
        (MISMATCH, RIGHT, "another version than the host's kernel module", "Reboot the host"),
        (UNREACHED, RIGHT, "does not reach the host's driver", "Give the container its GPU"),
        ("No devices were found\n", RIGHT, "finds no card", "Give the container"),
        ("nvidia-smi: there is no such program", RIGHT, "lists no card", "Give the container"),
        (CARD, {"code": 999}, "and CUDA cannot use it: cuInit answers 999", "nvidia-modprobe -u -c 0"),
        (CARD, {"code": 100}, "and CUDA cannot use it: cuInit answers 100", "nvidia-modprobe -u -c 0"),
        (CARD, {"code": 0, "count": 0}, "and CUDA cannot use it: it counts no card", "nvidia-modprobe"),
        (CARD, {}, "and CUDA cannot use it: it ended the program", "nvidia-modprobe"),
        (CARD, {"code": 803}, "cuInit answers 803 (the user space in the container is of another", "Reboot the host"),
        (CARD, {"code": 34}, "cuInit answers 34 (libcuda.so.1 is a toolkit's stand-in", "library path"),
        (CARD, {"error": "libcuda.so.1: cannot open"}, "cannot be loaded: libcuda.so.1: cannot open", "provision up"),
    ],
)
def test_anything_less_is_no_proof(listed: str, answer: dict[str, Any], problem: str, advice: str) -> None:
    verdict = judge_cuda(listed, answer)
    assert problem in verdict.problem
    assert advice in verdict.advice
    assert verdict.found == ()


def test_a_card_that_vulkan_lists_is_proved_beside_a_processor_that_plays_one() -> None:
    assert judge_vulkan(LLVMPIPE + RADEON, "amd") == Verdict(found=("AMD Radeon 780M (RADV PHOENIX)",))


@pytest.mark.parametrize(
    ("summary", "vendor", "problem"),
    [
        (LLVMPIPE, "amd", "finds only llvmpipe (LLVM 19.1.7, 256 bits), which is the processor that plays a card"),
        (RADEON.replace("radv", "lavapipe"), "amd", "the processor that plays a card"),
        (RADEON.replace("AMD Radeon 780M", "SwiftShader Device"), "amd", "the processor that plays a card"),
        (RADEON, "intel", "finds no card of intel, it finds AMD Radeon 780M"),
        (
            "ERROR: [Loader Message] Code 0 : vkCreateInstance: Found no drivers!",
            "amd",
            "finds no card of amd, it finds",
        ),
        ("vulkaninfo: there is no such program", "intel", "it finds none"),
    ],
)
def test_what_only_plays_a_card_is_none(summary: str, vendor: str, problem: str) -> None:
    verdict = judge_vulkan(summary, vendor)
    assert problem in verdict.problem
    assert verdict.advice


def test_devices_are_told_by_name_vendor_and_kind() -> None:
    devices = vulkan_devices(LLVMPIPE + RADEON)
    assert [(one.vendor_id, one.is_software) for one in devices] == [("0x10005", True), ("0x1002", False)]


def test_the_driver_may_talk_before_it_answers() -> None:
    assert answer_in('warning: odd\n{"code": 0, "count": 2}\n') == {"code": 0, "count": 2}
    assert answer_in("Segmentation fault") == {}


@pytest.mark.parametrize(
    ("state", "vendor", "problem", "advice"),
    [
        ("missing", "nvidia", "/dev/x is not there", "nvidia-modprobe"),
        ("missing", "amd", "/dev/x is not there", "Restart the container"),
        ("other", "amd", "no character device", "Remove"),
        ("dead", "amd", "no driver is behind it", "modprobe amdgpu"),
        ("denied", "intel", "a user in the groups render and video may not open", "provision up"),
        ("Input/output error", "amd", "cannot be opened: Input/output error", "kernel log"),
    ],
)
def test_a_node_that_nobody_can_use_is_named(state: str, vendor: str, problem: str, advice: str) -> None:
    verdict = judge_nodes({"/dev/fine": "", "/dev/x": state}, vendor)
    assert problem in verdict.problem
    assert advice in verdict.advice


def test_nodes_that_can_be_opened_are_no_problem(tmp_path: Path) -> None:
    assert judge_nodes({"/dev/null": opened("/dev/null")}, "amd") == Verdict()
    assert opened(str(tmp_path / "nothing")) == "missing"
    assert opened(str(tmp_path)) == "other"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make nodes, and is asked as somebody else")
def test_a_node_is_opened_as_a_member_of_the_cards_groups() -> None:
    groups = group_ids()
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to others
        Path(folder).chmod(0o755)
        node = Path(folder, "node")
        try:
            os.mknod(node, stat.S_IFCHR, os.makedev(1, 3))  # /dev/null's numbers
            node.read_bytes()
        except PermissionError:
            pytest.skip("this machine lets nobody use a node that was made here")
        node.chmod(0o660)
        assert opened(str(node)) == "denied"
        for group in groups:
            os.chown(node, 0, group)
            assert opened(str(node)) == ""
