"""What of a card arrived in a container, beside what should have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.doctor.inside import inside_diagnoses
from provisioner.gpus.inside import Access, Inside, Toolkit, Torch, User
from provisioner.gpus.look import cards_in
from tests.unit.gpus.test_cards import AMD, ONE, nodes

(NVIDIA,) = cards_in(ONE)
(APU,) = cards_in("\n".join([AMD, nodes("kfd eb 0", "dri/renderD129 e2 81")]))
SERVER = User("llama-server.service", 998, frozenset({998, 104}))
WELL = Inside(
    nodes=tuple(Access(node.path, 0o666, 0, 0) for node in NVIDIA.nodes if "nvidia-caps" not in node.path),
    module="580.95.05",
    libraries=(("libcuda", "580.95.05"), ("libnvidia-ml", "580.95.05")),
    glibc="2.41",
    users=(SERVER,),
)
IN_GROUP = Inside(nodes=tuple(Access(node.path, 0o660, 0, 104) for node in APU.nodes), glibc="2.41", users=(SERVER,))


def findings(seen: Inside, module: str = "") -> dict[str, str]:
    """The findings' messages with what to do, by check."""
    found = [one.finding for one in inside_diagnoses("llama", NVIDIA, seen, module) if one.finding]
    return {one.message.partition(": ")[0]: f"{one.message}\n{one.details}\n{one.resolution}" for one in found}


def test_all_is_there() -> None:
    assert [one.check.message for one in inside_diagnoses("llama", NVIDIA, WELL)] == [
        f"all 4 of {NVIDIA.title} are there, and llama-server.service may use them",
        "libcuda 580.95.05, as the host's kernel module",
    ]


def test_device_files_of_a_group_that_the_service_is_in() -> None:
    (found,) = inside_diagnoses("llama", APU, IN_GROUP)
    assert found.check.ok
    alone = replace(IN_GROUP, users=(replace(SERVER, gids=frozenset({998})),))
    (found,) = inside_diagnoses("llama", APU, alone)
    assert found.finding is not None
    assert "runs as user 998, which may not use /dev/kfd, /dev/dri/renderD129" in found.finding.message
    assert found.finding.details == "/dev/kfd has mode 0660, user 0 and group 104; the service's groups are 998."


def test_one_that_did_not_arrive() -> None:
    found = findings(replace(WELL, nodes=tuple(node for node in WELL.nodes if node.path != "/dev/nvidia-uvm")))
    assert "/dev/nvidia-uvm did not arrive" in found["device files"]
    assert "provision verify --after-reboot llama" in found["device files"]


@pytest.mark.parametrize(
    ("libraries", "words"),
    [
        ((), "libcuda.so.1 is not there"),
        ((("libcuda", "575.51.03"),), "libcuda is of version 575.51.03, the host's kernel module of 580.95.05"),
        ((("libcuda", "580.95.05"), ("libnvidia-ml", "575.51.03")), "libnvidia-ml is of version 575.51.03"),
        ((("libcuda", "575.51.03"), ("libcuda", "580.95.05")), "in several versions: 575.51.03, 580.95.05"),
    ],
)
def test_libraries_that_are_not_the_host_s(libraries: tuple[tuple[str, str], ...], words: str) -> None:
    assert words in findings(replace(WELL, libraries=libraries))["libraries"]
    assert words in findings(replace(WELL, libraries=libraries, module=""), "580.95.05")["libraries"]


def test_the_toolkit_s_stand_in_is_no_library() -> None:
    stub = replace(WELL, libraries=(), stubs=("/usr/lib/x86_64-linux-gnu/libcuda.so",))
    assert "/usr/lib/x86_64-linux-gnu/libcuda.so is a stand-in" in findings(stub)["libraries"]


def test_a_host_whose_module_nobody_tells_is_believed() -> None:
    assert findings(replace(WELL, module="")) == {}


@pytest.mark.parametrize(
    ("toolkit", "glibc", "gcc", "words"),
    [
        (Toolkit("12.4", 13, "/opt/cuda"), "2.36", "12.2.0", ""),
        (Toolkit("12.9", 14, "/opt/cuda"), "2.41", "14.2.0", "declare the same functions in two ways"),
        (Toolkit("13.0", 15, "/opt/cuda"), "2.41", "14.2.0", ""),
        (Toolkit("13.1", 15, "/opt/cuda"), "2.42", "15.1.0", "provision cuda check /opt/cuda"),
        (Toolkit("13.2", 15, "/opt/cuda"), "2.43", "15.1.0", ""),
        (Toolkit("13.2", 15, "/opt/cuda"), "2.43", "16.2.0", "takes GCC up to 15, there is 16"),
        (Toolkit("13.2", None, "/opt/cuda"), "2.43", "", ""),
    ],
)
def test_compilers(toolkit: Toolkit, glibc: str, gcc: str, words: str) -> None:
    found = findings(replace(WELL, toolkits=(toolkit,), glibc=glibc, gcc=gcc))
    assert list(found) == (["compiler"] if words else [])
    assert words in found.get("compiler", "")


@pytest.mark.parametrize(
    ("cuda", "module", "words"),
    [
        ("13.0", "580.95.05", ""),
        ("12.8", "535.183.01", ""),
        ("13.0", "575.64.03", "needs driver 580.65.06 or newer; the host runs 575.64.03"),
        ("12.8", "470.256.02", "needs driver 525.60.13 or newer"),
        ("13.0", "", ""),
        ("99.1", "580.95.05", ""),
        ("", "580.95.05", "was built without CUDA"),
    ],
)
def test_a_torch_has_to_be_for_a_cuda_that_the_driver_runs(cuda: str, module: str, words: str) -> None:
    seen = replace(WELL, module=module, torches=(Torch("2.11.0", cuda, "/opt/torch_stack/current"),))
    libraries = seen.libraries if module in ("", WELL.module) else (("libcuda", module), ("libnvidia-ml", module))
    found = findings(replace(seen, libraries=libraries))
    assert bool(found) is bool(words)
    assert words in found.get("torch", "") or not words
