"""Host trees as they are read, and the nodes and cards that follow from them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from provisioner.gpus.cards import Card
from provisioner.gpus.choice import CardRequest, Refusal, choices, chosen
from provisioner.gpus.look import SCRIPT, cards_in

GIB = 2**30
CONTROL = ("nvidiactl c3 ff", "nvidia-uvm 1ed 0", "nvidia-uvm-tools 1ed 1")
CAPS = ("nvidia-caps/nvidia-cap1 ee 1", "nvidia-caps/nvidia-cap2 ee 2")
VERSION = "-\tnvidia_version\tNVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025"


def nvidia(
    pci: str, minor: int, name: str = "NVIDIA GeForce RTX 3060", mib: int = 12288, driver: str = "nvidia"
) -> str:
    """What a host says of one card with NVIDIA's driver, or with another one."""
    lines = [
        (pci, "vendor", "0x10de"),
        (pci, "device", "0x2504"),
        (pci, "driver", driver),
        (pci, "current_link_speed", "2.5 GT/s PCIe"),
        (pci, "current_link_width", "8"),
        (pci, "max_link_speed", "16.0 GT/s PCIe"),
        (pci, "max_link_width", "16"),
    ]
    if driver == "nvidia":
        lines += [
            (pci, "nvidia", f"Model: \t\t {name}"),
            (pci, "nvidia", f"GPU UUID: \t GPU-{minor}"),
            (pci, "nvidia", f"Device Minor: \t {minor}"),
            ("-", "node", f"/dev/nvidia{minor} c3 {minor:x}"),
            ("-", "smi", f"0000{pci.upper()}, {name}, GPU-{minor}, {mib}, 8.6, 580.95.05"),
        ]
    return "\n".join("\t".join(line) for line in lines)


def nodes(*lines: str) -> str:
    """The host's own device nodes."""
    return "\n".join(f"-\tnode\t/dev/{line}" for line in lines)


AMD = (
    "\n".join(
        f"0000:04:00.0\t{name}\t{value}"
        for name, value in {
            "vendor": "0x1002",
            "device": "0x1638",
            "driver": "amdgpu",
            "drm": "card1",
            "mem_info_vram_total": str(GIB // 2),
            "mem_info_gtt_total": str(30 * GIB),
        }.items()
    )
    + "\n0000:04:00.0\tdrm\trenderD129"
)
INTEL = "\n".join(
    f"0000:00:02.0\t{name}\t{value}"
    for name, value in {"vendor": "0x8086", "device": "0x46a6", "driver": "i915", "drm": "renderD128"}.items()
)
ONE = "\n".join([nvidia("0000:01:00.0", 0), nodes(*CONTROL, *CAPS), VERSION])
TWO_EQUAL = "\n".join([ONE, nvidia("0000:02:00.0", 1)])
TWO_DIFFERENT = "\n".join([ONE, nvidia("0000:02:00.0", 1, "NVIDIA GeForce RTX 3050", 8192)])


def paths(card: Card) -> list[str]:
    """The nodes of a card."""
    return [node.path for node in card.nodes]


def test_one_card_has_its_nodes_and_all_that_the_driver_tells() -> None:
    (card,) = cards_in(ONE)
    assert paths(card) == [
        "/dev/nvidia0",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
        "/dev/nvidia-caps/nvidia-cap1",
        "/dev/nvidia-caps/nvidia-cap2",
    ]
    assert (card.nodes[0].major, card.nodes[0].minor, card.nodes[2].major) == (195, 0, 0x1ED)
    assert (card.name, card.uuid, card.memory) == ("NVIDIA GeForce RTX 3060", "GPU-0", 12 * GIB)
    assert (card.capability, card.driver_version, card.obstacle()) == ("8.6", "580.95.05", "")
    assert card.link is not None
    assert card.link.is_slow


def test_without_nvidia_smi_the_kernel_module_tells_less() -> None:
    (card,) = cards_in("\n".join(line for line in ONE.splitlines() if "\tsmi\t" not in line))
    assert (card.name, card.uuid, card.driver_version) == ("NVIDIA GeForce RTX 3060", "GPU-0", "580.95.05")
    assert (card.memory, card.capability) == (0, "")
    assert card.is_usable


def test_two_cards_have_a_node_each_and_share_the_others() -> None:
    first, second = cards_in(TWO_EQUAL)
    assert paths(second)[0] == "/dev/nvidia1"
    assert set(paths(first)) ^ set(paths(second)) == {"/dev/nvidia0", "/dev/nvidia1"}


def test_what_is_missing_after_a_reboot_is_named() -> None:
    (card,) = cards_in("\n".join([nvidia("0000:01:00.0", 0), nodes("nvidiactl c3 ff"), VERSION]))
    assert card.missing == ("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
    assert not card.is_usable
    assert "/dev/nvidia-uvm and /dev/nvidia-uvm-tools are missing" in card.obstacle()


def test_a_card_for_virtual_machines_is_told_apart() -> None:
    (card,) = cards_in(nvidia("0000:01:00.0", 0, driver="vfio-pci"))
    assert "vfio-pci" in card.obstacle()
    refusal = chosen(CardRequest(), [card])
    assert isinstance(refusal, Refusal)
    assert "reserved for virtual machines" in refusal.message


def test_an_apu_of_amd_has_kfd_and_its_own_renderer() -> None:
    (card,) = cards_in(
        "\n".join([AMD, nodes("kfd eb 0", "dri/card1 e2 1", "dri/renderD128 e2 80", "dri/renderD129 e2 81")])
    )
    assert paths(card) == ["/dev/kfd", "/dev/dri/renderD129"]
    assert (card.memory, card.shared_memory) == (GIB // 2, 30 * GIB)
    assert card.link is None
    assert chosen(CardRequest(vram=8 * GIB), [card]) == card


def test_intel_beside_nvidia() -> None:
    cards = cards_in("\n".join([ONE, INTEL, nodes("dri/renderD128 e2 80")]))
    assert [card.vendor for card in cards] == ["intel", "nvidia"]
    assert paths(cards[0]) == ["/dev/dri/renderD128"]
    assert chosen(CardRequest(vendor="intel"), cards) == cards[0]
    refusal = chosen(CardRequest(), cards)
    assert isinstance(refusal, Refusal)
    assert "0000:00:02.0" in refusal.message
    assert "0000:01:00.0" in refusal.message


def test_of_equal_cards_any_is_the_first() -> None:
    cards = cards_in(TWO_EQUAL)
    assert chosen(CardRequest(), cards) == cards[0]


def test_the_smallest_card_that_is_large_enough_is_taken() -> None:
    cards = cards_in(TWO_DIFFERENT)
    assert chosen(CardRequest(vram=8 * GIB), cards) == cards[1]
    assert chosen(CardRequest(vram=12 * GIB), cards) == cards[0]
    refusal = chosen(CardRequest(vram=24 * GIB), cards)
    assert isinstance(refusal, Refusal)
    assert "no card has 24GiB: NVIDIA GeForce RTX 3060 (0000:01:00.0) has 12GiB" in refusal.message


@pytest.mark.parametrize(
    "asked", [CardRequest(pci="0000:03:00.0"), CardRequest(uuid="GPU-9"), CardRequest(vendor="amd")]
)
def test_what_is_not_there_is_refused_with_what_is(asked: CardRequest) -> None:
    refusal = chosen(asked, cards_in(TWO_DIFFERENT))
    assert isinstance(refusal, Refusal)
    assert "NVIDIA GeForce RTX 3060 (0000:01:00.0), NVIDIA GeForce RTX 3050 (0000:02:00.0)" in refusal.message


def test_a_host_without_cards() -> None:
    assert cards_in("") == ()
    refusal = chosen(CardRequest(), ())
    assert isinstance(refusal, Refusal)
    assert "no graphics card" in refusal.message


def test_an_exclusive_card_is_nobody_else_s() -> None:
    cards = cards_in(ONE)
    found = choices({"a": CardRequest(exclusive=True), "b": CardRequest()}, cards)
    assert found["a"] == cards[0]
    assert isinstance(found["b"], Refusal)
    assert "given to container a" in found["b"].message
    twice = choices({"a": CardRequest(exclusive=True), "b": CardRequest(exclusive=True)}, cards_in(TWO_EQUAL))
    assert [one.pci for one in twice.values() if isinstance(one, Card)] == ["0000:01:00.0", "0000:02:00.0"]
    shared = choices({"a": CardRequest(), "b": CardRequest()}, cards)
    assert shared == {"a": cards[0], "b": cards[0]}


def test_who_names_a_card_is_served_first() -> None:
    cards = cards_in(TWO_EQUAL)
    found = choices({"a": CardRequest(exclusive=True), "b": CardRequest(pci="0000:01:00.0", exclusive=True)}, cards)
    assert found == {"a": cards[1], "b": cards[0]}


def test_the_script_runs_on_a_machine_and_its_answer_is_understood() -> None:
    done = subprocess.run(["sh", "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert all(card.pci.count(":") == 2 for card in cards_in(done.stdout))


@pytest.mark.parametrize(
    "banner",
    [
        "| NVIDIA-SMI 550.40.07              Driver Version: 550.40.07      CUDA Version: 12.4     |",
        "| NVIDIA-SMI 610.43.02              KMD Version: 610.43.02     CUDA UMD Version: 12.4     |",
    ],
)
def test_the_newest_cuda_of_a_driver_is_read_from_either_banner(banner: str) -> None:
    (card,) = cards_in(f"{ONE}\n-\tbanner\t{banner}\n-\truntime\tnvidia-container-cli")
    assert (card.cuda, card.runtime) == ("12.4", True)
    (alone,) = cards_in(ONE)
    assert (alone.cuda, alone.runtime) == ("", False)


SMI = """#!/bin/sh
[ $# = 0 ] && echo "| NVIDIA-SMI 610.43.02     KMD Version: 610.43.02     CUDA UMD Version: 13.3     |" && exit
echo "00000000:01:00.0, NVIDIA GeForce RTX 3060, GPU-1, 12288, 8.6, 580.95.05"
"""


def test_the_script_asks_the_driver_s_own_tools(tmp_path: Path) -> None:
    for name, text in (("nvidia-smi", SMI), ("nvidia-container-cli", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", SCRIPT], capture_output=True, text=True, check=True, env=environment, timeout=60)
    (card,) = cards_in("\n".join([nvidia("0000:01:00.0", 0), VERSION, done.stdout]))
    assert (card.cuda, card.runtime, card.capability) == ("13.3", True, "8.6")
