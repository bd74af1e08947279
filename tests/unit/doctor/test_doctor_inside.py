"""What of a card arrived in a container, beside what should have."""

from __future__ import annotations

from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.doctor.examine import diagnoses_text
from provisioner.doctor.inside import inside_diagnoses
from provisioner.gpus.cards import Card
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


UVM_IS_MISSING = tuple(node for node in WELL.nodes if node.path != "/dev/nvidia-uvm")
STUB = ("/usr/lib/x86_64-linux-gnu/libcuda.so",)
NOT_IN_GROUP = replace(IN_GROUP, users=(replace(SERVER, gids=frozenset({998})),))
OLDER = (("libcuda", "575.51.03"),)


def libraries(*of: tuple[str, str]) -> Inside:
    return replace(WELL, libraries=of)


def toolkit(release: str, gcc_up_to: int | None, glibc: str, gcc: str) -> Inside:
    return replace(WELL, toolkits=(Toolkit(release, gcc_up_to, "/opt/cuda"),), glibc=glibc, gcc=gcc)


def torch(cuda: str, module: str) -> Inside:
    """A Torch for this CUDA, and libraries of the host's module."""
    of = WELL.libraries if not module else (("libcuda", module), ("libnvidia-ml", module))
    return replace(WELL, module=module, torches=(Torch("2.11.0", cuda, "/opt/torch_stack/current"),), libraries=of)


CASES: dict[str, tuple[Card, Inside, str, set[str]]] = {
    "all is there": (NVIDIA, WELL, "", set()),
    "device files of the service's group": (APU, IN_GROUP, "", set()),
    "device files of another group": (APU, NOT_IN_GROUP, "", {"device files"}),
    "a device file that did not arrive": (NVIDIA, replace(WELL, nodes=UVM_IS_MISSING), "", {"device files"}),
    "no library": (NVIDIA, libraries(), "", {"libraries"}),
    "an older library": (NVIDIA, libraries(*OLDER), "", {"libraries"}),
    "an older library by the host's module": (
        NVIDIA,
        replace(WELL, libraries=OLDER, module=""),
        "580.95.05",
        {"libraries"},
    ),
    "one of two is older": (NVIDIA, libraries(WELL.libraries[0], ("libnvidia-ml", "575.51.03")), "", {"libraries"}),
    "two versions": (NVIDIA, libraries(*OLDER, WELL.libraries[0]), "", {"libraries"}),
    "a stand-in of the toolkit": (NVIDIA, replace(WELL, libraries=(), stubs=STUB), "", {"libraries"}),
    "a module that nobody tells": (NVIDIA, replace(WELL, module=""), "", set()),
    "cuda 12.4 with gcc 12": (NVIDIA, toolkit("12.4", 13, "2.36", "12.2.0"), "", set()),
    "cuda 12.9 with a newer glibc": (NVIDIA, toolkit("12.9", 14, "2.41", "14.2.0"), "", {"compiler"}),
    "cuda 13.0 with gcc 14": (NVIDIA, toolkit("13.0", 15, "2.41", "14.2.0"), "", set()),
    "cuda 13.1 with a newer glibc": (NVIDIA, toolkit("13.1", 15, "2.42", "15.1.0"), "", {"compiler"}),
    "cuda 13.2 with gcc 15": (NVIDIA, toolkit("13.2", 15, "2.43", "15.1.0"), "", set()),
    "cuda 13.2 with gcc 16": (NVIDIA, toolkit("13.2", 15, "2.43", "16.2.0"), "", {"compiler"}),
    "cuda 13.2 without gcc": (NVIDIA, toolkit("13.2", None, "2.43", ""), "", set()),
    "torch for cuda 13.0": (NVIDIA, torch("13.0", "580.95.05"), "", set()),
    "torch for cuda 12.8 with an older driver": (NVIDIA, torch("12.8", "535.183.01"), "", set()),
    "torch for cuda 13.0 with a driver too old": (NVIDIA, torch("13.0", "575.64.03"), "", {"torch"}),
    "torch for cuda 12.8 with a driver too old": (NVIDIA, torch("12.8", "470.256.02"), "", {"torch"}),
    "torch where nobody tells the driver": (NVIDIA, torch("13.0", ""), "", set()),
    "torch for an unknown cuda": (NVIDIA, torch("99.1", "580.95.05"), "", set()),
    "torch without cuda": (NVIDIA, torch("", "580.95.05"), "", {"torch"}),
}


@pytest.mark.parametrize(("card", "seen", "module", "wrong"), CASES.values(), ids=CASES)
def test_what_of_a_card_arrived(
    card: Card, seen: Inside, module: str, wrong: set[str], snapshot: SnapshotAssertion
) -> None:
    found = inside_diagnoses("llama", card, seen, module)
    assert {one.check.name for one in found if one.finding} == wrong
    assert diagnoses_text(found) == snapshot
