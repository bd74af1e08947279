"""What a unit uses of a card, from texts as drivers write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from provisioner.ansible.modules.provision_card_memory import (
    MIB,
    Client,
    before_in,
    client_in,
    clients_of,
    driver_now,
    of_clients,
    of_nvidia,
    processes_in,
    size_of,
    uses_in,
)
from provisioner.inside.agent import driver_now as seen_by_agent
from tests.case_files import read_cases

CASES = read_cases("ansible/provision_card_memory")

UUID = "GPU-3b1a0b36-7a4e-5d2a-9d0e-2f1f4c1d8a11"
OTHER = "GPU-99990b36-7a4e-5d2a-9d0e-2f1f4c1d8a22"
IDLE = (
    f"{UUID}, 00000000:01:00.0, NVIDIA GeForce RTX 3060, 5\n{OTHER}, 00000000:02:00.0, NVIDIA GeForce RTX 3060, 900\n"
)
BUSY = IDLE.replace("3060, 5\n", "3060, 6405\n")
CARD = {"vendor": "nvidia", "pci": "0000:01:00.0", "uuid": UUID}
NAMES = ["NVIDIA GeForce RTX 3060"]

# amdgpu of a discrete card, Umio-Yasuno/amdgpu_top#87; of an APU with a model of 24 GB, Syllo/nvtop#492; i915 as in
# proc_pid_fdinfo(5); xe as in the kernel's own page of it (gpu/xe/xe-drm-usage-stats).
DISCRETE: str = CASES["discrete"]
APU = """\
drm-driver:\tamdgpu
drm-client-id:\t31
drm-pdev:\t0000:c5:00.0
drm-memory-cpu:         0 KiB
drm-memory-gtt:  25258000 KiB
drm-memory-vram:     5348 KiB
"""
I915: str = CASES["i915"]
XE: str = CASES["xe"]
KIB = 2**10


def grown(said: str, before: str | None, **card: Any) -> tuple[int, str]:
    found = of_nvidia(said, before, card, NAMES)
    return found.grown // MIB if found.grown > 0 else found.grown, found.problem


def test_a_card_of_nvidia_has_grown_by_what_it_uses_more() -> None:
    assert grown(BUSY, IDLE, **CARD) == (6400, "")
    assert grown(IDLE, IDLE, **CARD) == (0, "")
    assert grown(IDLE, BUSY, **CARD) == (0, ""), "another one's memory that was freed is nothing of ours"


def test_equal_cards_count_together_where_only_their_name_is_known() -> None:
    assert grown(BUSY, IDLE) == (6400, "")
    assert of_nvidia(BUSY, IDLE, {}, NAMES).cards == [
        "NVIDIA GeForce RTX 3060 (0000:01:00.0)",
        "NVIDIA GeForce RTX 3060 (0000:02:00.0)",
    ]
    assert "does not name the card" in of_nvidia(BUSY, IDLE, {}, ["NVIDIA GeForce RTX 4090"]).problem


@pytest.mark.parametrize(
    ("said", "before", "words"),
    [
        (BUSY, None, "nobody measured the card before the server started"),
        (BUSY, "timeout: nvidia-smi", "before the server started nvidia-smi said: timeout"),
        ("Failed to initialize NVML: Driver/library version mismatch\n", IDLE, "Driver/library version mismatch"),
        ("nvidia-smi: [Errno 2] No such file or directory: 'nvidia-smi'", IDLE, "No such file or directory"),
        (BUSY.replace("6405", "[N/A]"), IDLE, "does not say how much"),
    ],
)
def test_what_cannot_be_measured_says_why(said: str, before: str | None, words: str) -> None:
    known, problem = grown(said, before, **CARD)
    assert known == -1
    assert words in problem


def test_a_reading_of_another_start_does_not_count(tmp_path: Path) -> None:
    file = tmp_path / "card"
    assert before_in(file, "abc") is None
    file.write_text("abc\n" + IDLE)
    assert before_in(file, "abc") == IDLE
    assert before_in(file, "abd") is None


def test_the_kernel_s_clients_are_read_with_their_units() -> None:
    assert client_in(DISCRETE) == Client("0000:08:00.0", "217", 2068 * KIB, 8192 * KIB, has_own=True)
    assert client_in(XE) == Client("0000:03:00.0", "3", 23992 * KIB, 192 * KIB, has_own=True)
    assert client_in(I915) == Client("0000:00:02.0", "39", 0, 6044 * KIB, has_own=False)
    assert client_in("pos:\t0\nflags:\t02\neventfd-count: 0\n") is None
    assert client_in(DISCRETE.replace("amdgpu", "nvidia-drm")) is None


def devices(folder: Path, pci: str, **facts: int) -> Path:
    (folder / pci).mkdir()
    for name, value in facts.items():
        (folder / pci / name).write_text(f"{value}\n")
    return folder


def read(text: str) -> list[Client]:
    client = client_in(text)
    assert client
    return [client]


def test_the_host_s_memory_counts_for_an_apu_and_for_no_other_card(tmp_path: Path) -> None:
    """What lies in the host's memory and is only lent to a card of its own (pinned weights) is not on the card."""
    apu = devices(tmp_path, "0000:c5:00.0", mem_info_vram_total=512 * MIB, mem_info_vram_used=100 * MIB)
    assert of_clients(read(APU), "0000:c5:00.0", 48 * 1024, apu).grown == (25258000 + 5348) * KIB
    card = devices(tmp_path, "0000:08:00.0", mem_info_vram_total=8176 * MIB, mem_info_vram_used=300 * MIB)
    assert of_clients(read(DISCRETE), "", 8176, card).grown == 2068 * KIB
    assert of_clients(read(DISCRETE), "", 8176, card).used == 300 * MIB
    assert of_clients(read(I915), "", 16000, tmp_path).grown == 6044 * KIB
    assert of_clients(read(XE), "", 12000, tmp_path).grown == 23992 * KIB


def test_another_card_s_memory_does_not_count(tmp_path: Path) -> None:
    found = of_clients(read(DISCRETE), "0000:09:00.0", 8176, tmp_path)
    assert (found.grown, found.problem) == (
        -1,
        ("the kernel says that the server has opened these cards: 0000:08:00.0; not 0000:09:00.0"),
    )
    assert of_clients([], "", 0, tmp_path).problem.endswith("these cards: none; not any")


def test_a_client_with_several_open_files_counts_once(tmp_path: Path) -> None:
    for process, names in {"10": "34", "11": "5"}.items():
        (tmp_path / process / "fdinfo").mkdir(parents=True)
        for name in names:
            (tmp_path / process / "fdinfo" / name).write_text(DISCRETE)
    assert [one.number for one in clients_of([10, 11, 12], tmp_path)] == ["217"]


def test_processes_of_a_group_are_those_of_its_children_too(tmp_path: Path) -> None:
    (tmp_path / "system.slice/a.service/child").mkdir(parents=True)
    (tmp_path / "system.slice/a.service/cgroup.procs").write_text("12\n10\n")
    (tmp_path / "system.slice/a.service/child/cgroup.procs").write_text("13\n")
    assert processes_in("/system.slice/a.service", tmp_path) == [10, 12, 13]
    assert processes_in("", tmp_path / "none") == []


def test_a_model_of_several_files_has_the_size_of_all(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"big-0000{number}-of-00003.gguf").write_bytes(b"x" * number)
    (tmp_path / "one.gguf").write_bytes(b"x" * 9)
    assert size_of(tmp_path / "big-00001-of-00003.gguf") == 6
    assert size_of(tmp_path / "one.gguf") == 9
    assert size_of(tmp_path / "none.gguf") == 0


def test_lines_of_another_form_are_no_cards() -> None:
    assert uses_in("No devices were found\n") == []


def test_both_sides_mean_the_same_driver() -> None:
    assert driver_now() == seen_by_agent()
