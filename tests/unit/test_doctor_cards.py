"""What a host does for the cards that its containers want becomes lines, and findings with what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.doctor.cards import Graphics, card_diagnoses
from provisioner.doctor.slot import slot_verdict
from provisioner.gpus.cards import Link
from provisioner.gpus.choice import CardRequest
from provisioner.gpus.health import UNIT, HostDriver
from provisioner.gpus.look import cards_in
from tests.unit.gpus.test_cards import (
    AMD,
    CAPS,
    INTEL,
    ONE,
    TWO_DIFFERENT,
    TWO_EQUAL,
    VERSION,
    nodes,
    nvidia,
)

ANY = {"llama": CardRequest()}
WELL = HostDriver(module="580.95.05", next_module="580.95.05", has_modprobe=True, makers=(UNIT,))
CARD = "NVIDIA GeForce RTX 3060 (0000:01:00.0)"
WITHOUT_TOOLS = (
    "there is no nvidia-container-cli: containers get libraries of their own, which have to follow each upgrade of the "
    "host's driver (sudo provision host prepare --gpu installs it)"
)
VFIO = nvidia("0000:02:00.0", 1, driver="vfio-pci")
WITHOUT_UVM = "\n".join([nvidia("0000:01:00.0", 0), nodes("nvidiactl c3 ff"), VERSION])
APU = "\n".join([AMD, nodes("kfd eb 0", "dri/renderD129 e2 81")])
MIG = "\n".join([ONE, nodes(*CAPS)])


def said(answer: str, requests: dict[str, CardRequest] | None = None, driver: HostDriver = WELL) -> dict[str, str]:
    """The findings' messages by check, with what to do behind it."""
    seen = Graphics("box", cards_in(answer), driver, ANY if requests is None else requests, lends=True)
    found = [one.finding for one in card_diagnoses(seen) if one.finding]
    return {one.message.partition(": ")[0]: f"{one.message}\n{one.details}\n{one.resolution}" for one in found}


def lines(answer: str, requests: dict[str, CardRequest] | None = None, driver: HostDriver = WELL) -> list[str]:
    """Every line, "name: message", those that are not well with a mark."""
    seen = Graphics("box", cards_in(answer), driver, ANY if requests is None else requests, lends=True)
    checks = [one.check for one in card_diagnoses(seen)]
    return [f"{'' if one.ok else '! '}{one.name}: {one.message}" for one in checks]


def wide(answer: str) -> str:
    """The same host, its cards with all their lanes."""
    return answer.replace("current_link_width\t8", "current_link_width\t16")


def test_a_host_that_does_all_for_its_card() -> None:
    assert lines(wide(ONE)) == [
        f"gpu: container llama gets {CARD}",
        f"driver: {CARD}: nvidia 580.95.05",
        f"nodes: {CARD}: all 6 are there",
        f"slot: {CARD}: PCIe 4.0 x16, about 32 GB/s",
        f"memory: {CARD}: 12GiB",
        "module: 580.95.05, and so after the next start",
        f"boot: the nodes are made at every start by {UNIT}",
        f"tools: {WITHOUT_TOOLS}",
    ]
    with_tools = lines(f"{wide(ONE)}\n-\truntime\tnvidia-container-cli")
    assert with_tools[-1].startswith("tools: nvidia-container-cli is there")


def test_a_host_without_cards_and_wishes_has_no_line() -> None:
    assert lines("", {}) == []


def test_a_host_without_the_card_that_is_wanted() -> None:
    assert list(said("")) == ["gpu"]
    assert "no graphics card" in said("")["gpu"]


def test_a_card_that_nobody_wants_is_a_line_and_no_finding() -> None:
    assert lines(ONE, {}) == [f"card: {CARD}, 12GiB: no container gets it"]
    (line,) = lines(VFIO, {})
    assert line.endswith("no container gets it; it is reserved for virtual machines (driver vfio-pci)")


def test_of_two_equal_ones_the_other_is_a_line() -> None:
    assert [one.partition(":")[0] for one in lines(wide(TWO_EQUAL))].count("driver") == 1
    assert lines(wide(TWO_EQUAL))[-1].startswith("card: NVIDIA GeForce RTX 3060 (0000:02:00.0)")


def test_of_two_different_ones_one_has_to_be_named() -> None:
    found = said(TWO_DIFFERENT)
    assert list(found) == ["gpu"]
    assert "gpu: { pci:" in found["gpu"]
    assert list(said(wide(TWO_DIFFERENT), {"llama": CardRequest(pci="0000:02:00.0")})) == []


def test_a_card_for_virtual_machines() -> None:
    found = said(VFIO)
    assert "reserved for virtual machines" in found["driver"]
    assert "update-initramfs -u" in found["driver"]
    assert "nodes" not in found


def test_another_one_that_can_be_used_hides_no_card_for_virtual_machines() -> None:
    answer = f"{wide(ONE)}\n{VFIO}"
    assert said(answer) == {}
    assert "driver" in said(answer, {"llama": CardRequest(pci="0000:02:00.0")})


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (nvidia("0000:01:00.0", 0, driver="nouveau"), "apt install nvidia-driver"),
        (AMD.replace("driver\tamdgpu", "driver\t"), "firmware-amd-graphics"),
        (INTEL.replace("driver\ti915", "driver\t"), "modprobe i915"),
    ],
)
def test_a_driver_that_cannot_compute(answer: str, hint: str) -> None:
    found = said(answer)
    assert "its driver is" in found["driver"]
    assert hint in found["driver"]


def test_nodes_that_are_missing_and_will_be_after_the_next_start() -> None:
    found = said(wide(WITHOUT_UVM), driver=replace(WELL, makers=(), has_persistence=True))
    assert "/dev/nvidia-uvm and /dev/nvidia-uvm-tools are missing" in found["nodes"]
    assert "sudo nvidia-modprobe -u -c 0" in found["nodes"]
    assert "doctor --fix" in found["nodes"]
    assert "nvidia-persistenced makes the others alone" in found["boot"]
    assert "sudo provision host prepare --gpu" in found["boot"]
    assert "apt install nvidia-modprobe" in said(WITHOUT_UVM, driver=HostDriver())["nodes"]


def test_a_driver_that_was_upgraded_while_it_ran() -> None:
    complaint = "Failed to initialize NVML: Driver/library version mismatch NVML library version: 580.105.08"
    found = said(wide(ONE), driver=replace(WELL, complaint=complaint))
    assert complaint in found["module"]
    assert "start the host anew, then run provision up" in found["module"]


def test_a_driver_that_the_next_start_brings() -> None:
    found = said(wide(ONE), driver=replace(WELL, next_module="580.105.08"))
    assert "580.95.05 runs, and the next start of the host loads 580.105.08" in found["module"]


def test_nvidia_smi_that_fails_otherwise() -> None:
    found = said(wide(ONE), driver=replace(WELL, complaint="No devices were found"))
    assert "No devices were found" in found["module"]


def test_fewer_lanes_than_the_card_has() -> None:
    found = said(ONE)
    assert (
        "x8 of its x16 lanes (PCIe 4.0): about 16 of 32 GB/s; 8 GB of model take 0.5 s to load, not 0.2"
        in found["slot"]
    )
    narrow = (("0000:01:00.0", Link(16.0, 4, 16.0, 16)),)
    assert "x4 of its x16 lanes" in said(wide(ONE), driver=replace(WELL, paths=narrow))["slot"]


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


def test_an_apu_has_no_slot_and_takes_of_the_machine_s_memory() -> None:
    assert lines(APU) == [
        "gpu: container llama gets AMD 0x1638 (0000:04:00.0)",
        "driver: AMD 0x1638 (0000:04:00.0): amdgpu",
        "nodes: AMD 0x1638 (0000:04:00.0): all 2 are there",
        "memory: AMD 0x1638 (0000:04:00.0): 512MiB, and up to 30GiB of the machine's",
    ]
    assert "modprobe amdgpu" in said(AMD)["nodes"]


def test_intel_beside_nvidia() -> None:
    answer = "\n".join([wide(ONE), INTEL, nodes("dri/renderD128 e2 80")])
    assert said(answer, {"llama": CardRequest(vendor="nvidia"), "eyes": CardRequest(vendor="intel")}) == {}
    assert [
        one for one in lines(answer, {"eyes": CardRequest(vendor="intel")}) if one.startswith(("module", "boot"))
    ] == []


def test_the_parts_of_a_card_that_is_divided() -> None:
    assert "nodes: NVIDIA GeForce RTX 3060 (0000:01:00.0): all 6 are there" in lines(wide(MIG))
