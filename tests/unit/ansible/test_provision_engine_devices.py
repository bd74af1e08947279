"""Why an engine would compute on the CPU though a device was asked for: each state as it was seen, with its text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from provisioner.ansible.modules.provision_engine_devices import (
    Seen,
    answer_in,
    devices_in,
    has_backend,
    judge,
    libraries_in,
    look,
    nodes_in,
)
from tests.case_files import read_cases

CASES = read_cases("ansible/provision_engine_devices")

NONE = "Available devices:\n  (none)\n"
FAILED = "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected\n" + NONE
TWO = """\
Available devices:
  CUDA0: NVIDIA GeForce RTX 3060 (12287 MiB, 11800 MiB free)
  CUDA1: NVIDIA GeForce RTX 3050 (8192 MiB, 8000 MiB free)
"""
BUILT = {"libcudart.so.13": True, "libcublas.so.13": True, "libcuda.so.1": True, "libc.so.6": True}
LISTING = """\
\tlinux-vdso.so.1 (0x00007ffd0d5f2000)
\tlibcudart.so.13 => /opt/llama_cpp/bin/libcudart.so.13 (0x00007f1)
\tlibcublas.so.13 => not found
\tlibcuda.so.1 => not found
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f2)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f3)
"""


def judged(said: str, libraries: dict[str, bool], *devices: str, plugins: tuple[str, ...] = (), **driver: Any) -> str:
    problem, advice = judge(Seen(libraries, plugins, said, driver), "cuda", devices or ("CUDA0",), "13.2")
    assert bool(problem) == bool(advice)
    return problem


def test_a_device_that_is_listed_is_there() -> None:
    assert judged(TWO, BUILT, "CUDA0", "CUDA1", code=0, version=13020) == ""


@pytest.mark.parametrize(("problem", "words"), CASES["each state is told by its own text"])
def test_each_state_is_told_by_its_own_text(problem: str, words: str) -> None:
    assert words in problem


def test_an_older_driver_of_the_same_major_version_runs_the_program() -> None:
    assert judged(TWO, BUILT, code=0, version=13000) == ""


def test_a_build_for_another_backend_does_not_count() -> None:
    vulkan = Seen({"libvulkan.so.1": True}, (), NONE, {})
    assert has_backend(vulkan, "vulkan")
    assert not has_backend(vulkan, "cuda")
    assert judge(vulkan, "vulkan", ["Vulkan0"], "")[0] == "there is no Vulkan0, it finds none"


def test_devices_are_read_with_their_memory() -> None:
    assert [(one.name, one.memory_mib) for one in devices_in(TWO)] == [("CUDA0", 12287), ("CUDA1", 8192)]
    assert devices_in(FAILED) == ()
    (without,) = devices_in("Available devices:\n  Vulkan0: llvmpipe (LLVM 15.0.6, 256 bits)\n")
    assert (without.description, without.memory_mib) == ("llvmpipe (LLVM 15.0.6, 256 bits)", 0)


def test_libraries_are_read_as_the_loader_lists_them() -> None:
    assert libraries_in(LISTING) == {
        "libcudart.so.13": True,
        "libcublas.so.13": False,
        "libcuda.so.1": False,
        "libc.so.6": True,
    }


def test_what_the_driver_says_beside_its_answer_is_skipped() -> None:
    assert answer_in('NVRM: a word\n{"code": 100, "version": 13020}\n') == {"code": 100, "version": 13020}
    assert answer_in("Segmentation fault\n") == {}


def test_plugins_beside_the_program_are_found(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\necho 'Available devices:'; echo '  (none)'; echo \"$SEEN\"\n")
    program.chmod(0o755)
    (tmp_path / "backends0").mkdir()
    (tmp_path / "backends0" / "libggml-vulkan.so").touch()
    seen = look(program, "vulkan", {"SEEN": "a variable"})
    assert seen.plugins == ("libggml-vulkan.so",)
    assert "a variable" in seen.said


VULKAN = {"libvulkan.so.1": True}
LLVMPIPE = "Available devices:\n  Vulkan0: llvmpipe (LLVM 19.1.7, 256 bits) (7939 MiB, 7939 MiB free)\n"
SWIFTSHADER = "Available devices:\n  Vulkan0: SwiftShader Device (Subzero) (7939 MiB, 7939 MiB free)\n"
RADEON = "Available devices:\n  Vulkan0: AMD Radeon RX 6600 (RADV NAVI23) (8176 MiB, 8000 MiB free)\n"
RENDERER = {"/dev/dri/renderD128": ""}
NVIDIA = {"/dev/nvidiactl": "", "/dev/nvidia0": ""}


def of_vulkan(said: str, nodes: dict[str, str], device: str = "Vulkan0") -> tuple[str, str]:
    return judge(Seen(VULKAN, (), said, {}, nodes), "vulkan", [device], "")


@pytest.mark.parametrize("said", [LLVMPIPE, SWIFTSHADER])
def test_a_processor_that_plays_a_card_is_none(said: str) -> None:
    problem, advice = of_vulkan(said, {})
    assert problem.endswith(", the processor playing a card")
    assert advice == "There is no /dev/dri/renderD* in the container. Give it its GPU (`gpu: any`)."
    assert of_vulkan(RADEON, RENDERER) == ("", "")


def test_one_of_several_devices_that_is_played_is_told() -> None:
    both = RADEON + LLVMPIPE.splitlines()[1].replace("Vulkan0", "Vulkan1")
    problem, _ = judge(Seen(VULKAN, (), both, {}, RENDERER), "vulkan", ["Vulkan0", "Vulkan1"], "")
    assert problem == "Vulkan1 is llvmpipe (LLVM 19.1.7, 256 bits), the processor playing a card"


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ({}, "There is no /dev/dri/renderD* in the container"),
        (RENDERER, "The container has /dev/dri/renderD128, but Mesa has no driver for that card"),
        ({"/dev/dri/renderD128": "No such device or address"}, "cannot be opened (No such device or address)"),
        (NVIDIA | RENDERER, "not NVIDIA's part for Vulkan (libGLX_nvidia.so.0 and nvidia_icd.json"),
    ],
)
def test_what_vulkan_lacks_is_told_by_the_nodes(nodes: dict[str, str], words: str) -> None:
    assert words in of_vulkan(LLVMPIPE, nodes)[1]
    assert words in of_vulkan(NONE, nodes)[1], "without it no device is found at all"
    assert of_vulkan(RADEON, RENDERER, "Vulkan3")[1] == "Correct `device`, or give the container its GPU."


def without_uvm(nodes: dict[str, str], code: int = 999) -> str:
    seen = Seen(BUILT, (), FAILED, {"code": code, "version": 13020}, nodes)
    return " ".join(judge(seen, "cuda", ["CUDA0"], "13.2"))


def test_a_driver_without_its_second_node_is_told_from_one_without_a_card() -> None:
    """After a boot of the host nvidia-smi works at once, and CUDA answers 999: pytorch/pytorch#49081."""
    said = without_uvm(NVIDIA)
    assert "error 999: nvidia-smi may work, but CUDA needs /dev/nvidia-uvm (it is missing)" in said
    assert "nvidia-modprobe -u -c 0" in said
    assert "No such device" in without_uvm(NVIDIA | {"/dev/nvidia-uvm": "No such device or address"})
    assert "uvm" not in without_uvm(NVIDIA | {"/dev/nvidia-uvm": ""})
    assert "another version" in without_uvm(NVIDIA, 803)


def test_nodes_are_those_of_cards_with_what_keeps_them_closed(tmp_path: Path) -> None:
    (tmp_path / "dri").mkdir()
    for name in ("nvidiactl", "nvidia0", "nvidia-uvm-tools", "dri/card0", "dri/renderD128", "null"):
        (tmp_path / name).touch()
    (tmp_path / "nvidia-uvm").mkdir()
    assert nodes_in(tmp_path) == {
        "/dev/nvidiactl": "",
        "/dev/nvidia-uvm": "Is a directory",
        "/dev/nvidia0": "",
        "/dev/dri/renderD128": "",
    }
