"""What a host does for the cards that its containers want becomes lines, and findings with what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.doctor.cards import Graphics, card_diagnoses
from provisioner.doctor.examine import diagnoses_text
from provisioner.doctor.hosts import slot_verdict
from provisioner.gpus.cards import Link
from provisioner.gpus.choice import CardRequest
from provisioner.gpus.health import UNIT, HostDriver
from provisioner.gpus.look import cards_in
from tests.unit.gpus.test_cards import AMD, CAPS, INTEL, ONE, TWO_DIFFERENT, TWO_EQUAL, VERSION, nodes, nvidia

ANY = {"llama": CardRequest()}
WELL = HostDriver(module="580.95.05", next_module="580.95.05", has_modprobe=True, makers=(UNIT,))
CARD = "NVIDIA GeForce RTX 3060 (0000:01:00.0)"
VFIO = nvidia("0000:02:00.0", 1, driver="vfio-pci")
WITHOUT_UVM = "\n".join([nvidia("0000:01:00.0", 0), nodes("nvidiactl c3 ff"), VERSION])
APU = "\n".join([AMD, nodes("kfd eb 0", "dri/renderD129 e2 81")])
MIG = "\n".join([ONE, nodes(*CAPS)])


COMPLAINT = "Failed to initialize NVML: Driver/library version mismatch NVML library version: 580.105.08"


def wide(answer: str) -> str:
    """The same host, its cards with all their lanes."""
    return answer.replace("current_link_width\t8", "current_link_width\t16")


SECOND, TWO_MAKERS = (
    {"llama": CardRequest(pci="0000:02:00.0")},
    "\n".join([wide(ONE), INTEL, nodes("dri/renderD128 e2 80")]),
)
CASES: dict[str, tuple[str, dict[str, CardRequest], HostDriver, set[str]]] = {
    "all is well": (wide(ONE), ANY, WELL, set()),
    "tools": (f"{wide(ONE)}\n-\truntime\tnvidia-container-cli", ANY, WELL, set()),
    "neither cards nor requests": ("", {}, WELL, set()),
    "no card where one is wanted": ("", ANY, WELL, {"gpu"}),
    "a card that nobody wants": (ONE, {}, WELL, set()),
    "a card for virtual machines that nobody wants": (VFIO, {}, WELL, set()),
    "a card for virtual machines": (VFIO, ANY, WELL, {"gpu", "driver"}),
    "one beside that for virtual machines": (f"{wide(ONE)}\n{VFIO}", ANY, WELL, set()),
    "that for virtual machines of two": (f"{wide(ONE)}\n{VFIO}", SECOND, WELL, {"gpu", "driver"}),
    "two equal ones": (wide(TWO_EQUAL), ANY, WELL, set()),
    "two different ones": (TWO_DIFFERENT, ANY, WELL, {"gpu"}),
    "the second of two different ones": (wide(TWO_DIFFERENT), SECOND, WELL, set()),
    "nouveau": (nvidia("0000:01:00.0", 0, driver="nouveau"), ANY, WELL, {"gpu", "driver"}),
    "amd without a driver": (AMD.replace("driver\tamdgpu", "driver\t"), ANY, WELL, {"gpu", "driver"}),
    "intel without a driver": (INTEL.replace("driver\ti915", "driver\t"), ANY, WELL, {"gpu", "driver"}),
    "nodes that are missing after each start": (
        wide(WITHOUT_UVM), ANY, replace(WELL, makers=(), has_persistence=True), {"gpu", "nodes", "boot"},
    ),
    "nodes that nothing here makes": (WITHOUT_UVM, ANY, HostDriver(), {"gpu", "nodes", "slot", "boot"}),
    "a driver upgraded while it ran": (wide(ONE), ANY, replace(WELL, complaint=COMPLAINT), {"module"}),
    "a driver that the next start brings": (wide(ONE), ANY, replace(WELL, next_module="580.105.08"), {"module"}),
    "nvidia-smi fails otherwise": (wide(ONE), ANY, replace(WELL, complaint="No devices were found"), {"module"}),
    "fewer lanes than the card has": (ONE, ANY, WELL, {"slot"}),
    "fewer lanes on the way": (
        wide(ONE), ANY, replace(WELL, paths=(("0000:01:00.0", Link(16.0, 4, 16.0, 16)),)), {"slot"},
    ),
    "an apu": (APU, ANY, WELL, set()),
    "amd without nodes": (AMD, ANY, WELL, {"gpu", "nodes"}),
    "intel beside nvidia": (
        TWO_MAKERS, {"llama": CardRequest(vendor="nvidia"), "eyes": CardRequest(vendor="intel")}, WELL, set(),
    ),
    "intel alone of both": (TWO_MAKERS, {"eyes": CardRequest(vendor="intel")}, WELL, set()),
    "a divided card": (wide(MIG), ANY, WELL, set()),
}  # fmt: skip


@pytest.mark.parametrize(("answer", "requests", "driver", "wrong"), CASES.values(), ids=CASES)
def test_what_a_host_does_for_its_cards(
    answer: str, requests: dict[str, CardRequest], driver: HostDriver, wrong: set[str], snapshot: SnapshotAssertion
) -> None:
    found = card_diagnoses(Graphics("box", cards_in(answer), driver, requests, lends=True, is_here=True))
    assert {one.check.name for one in found if one.finding} == wrong
    assert diagnoses_text(found) == snapshot


def test_doctor_promises_to_make_nodes_on_this_machine_alone() -> None:
    for is_here in (True, False):
        found = diagnoses_text(card_diagnoses(Graphics("pve", cards_in(WITHOUT_UVM), WELL, ANY, is_here=is_here)))
        assert "sudo nvidia-modprobe -u -c 0 makes them" in found
        assert ("provision doctor --fix" in " ".join(found.split())) == is_here


@pytest.mark.parametrize(
    ("link", "words"),
    [
        (Link(2.5, 16, 16.0, 16), "PCIe 4.0 x16, about 32 GB/s"),  # idle: its speed says nothing
        (Link(32.0, 16, 32.0, 16), "PCIe 5.0 x16, about 63 GB/s"),
        (Link(16.0, 8, 16.0, 8), "PCIe 4.0 x8, about 16 GB/s"),
        (Link(8.0, 8, 8.0, 8), "PCIe 3.0 x8, about 8 GB/s; slow for experts"),
        (Link(99.0, 8, 99.0, 8), "99 GT/s x8"),
    ],
)
def test_what_a_slot_carries(link: Link, words: str) -> None:
    verdict = slot_verdict("a card", link)
    assert verdict.problem == ""
    assert verdict.seen.startswith(f"a card: {words}")
