"""What a second server could use: free memory of the container, a free port."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenario_programs import module_at

GIB = 1 << 30
ROOM = Path(__file__).parents[3] / "roles/switch/programs/room.py"
room = module_at(ROOM)


def group(folder: Path, limit: str, current: int, **counted: int) -> Path:
    """A group of processes as the kernel shows it."""
    folder.joinpath("memory.max").write_text(f"{limit}\n")
    folder.joinpath("memory.current").write_text(f"{current}\n")
    folder.joinpath("memory.stat").write_text("".join(f"{name} {value}\n" for name, value in counted.items()))
    return folder


def test_what_the_kernel_could_drop_is_free(tmp_path: Path) -> None:
    there = group(tmp_path, str(4 * GIB), 3 * GIB, anon=GIB, active_file=GIB // 2, inactive_file=GIB // 4, shmem=GIB)
    assert room.free_in_group(there) == GIB + GIB // 2 + GIB // 4


def test_without_a_limit_the_group_is_none(tmp_path: Path) -> None:
    assert room.free_in_group(tmp_path) == sys.maxsize
    assert room.free_in_group(group(tmp_path, "max", GIB)) == sys.maxsize


def test_the_kernels_own_figure_counts_as_well(tmp_path: Path) -> None:
    file = tmp_path / "meminfo"
    file.write_text("MemTotal:        8000000 kB\nMemFree:          100 kB\nMemAvailable:    2048 kB\n")
    assert room.free_in_system(file) == 2 << 20
    file.write_text("MemTotal: 1 kB\n")
    with pytest.raises(SystemExit, match="MemAvailable"):
        room.free_in_system(file)


def test_it_tells_a_port_that_can_be_had_and_how_large_the_files_are(tmp_path: Path) -> None:
    files = [tmp_path / "one", tmp_path / "two"]
    for file in files:
        file.write_bytes(b"x" * 1000)
    done = subprocess.run(
        [sys.executable, "-IS", "-c", ROOM.read_text(), *files], capture_output=True, text=True, check=True, timeout=120
    )
    told = json.loads(done.stdout)
    assert told["files"] == 2000
    assert told["memory"] > 0
    with socket.socket() as one:
        one.bind(("127.0.0.1", told["port"]))


@pytest.mark.parametrize(("at_once", "counted"), [(0, 1110), (1, 1000), (2, 1100), (9, 1110)])
def test_of_files_that_are_read_in_turns_the_largest_count(tmp_path: Path, at_once: int, counted: int) -> None:
    files = [tmp_path / str(size) for size in (10, 1000, 100)]
    for file in files:
        file.write_bytes(b"x" * int(file.name))
    assert room.largest(files, at_once) == counted
