"""What a container says of the nodes and libraries that arrived there."""

from __future__ import annotations

import subprocess

import pytest

from provisioner.gpus.inside import SCRIPT, Access, Inside, Toolkit, Torch, User, inside_in
from tests.case_files import read_cases

CASES = read_cases("gpus/inside")

SAID: str = CASES["said"]


def test_the_script_runs_where_there_is_nothing() -> None:
    done = subprocess.run(["sh", "-c", SCRIPT, "sh"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert inside_in(done.stdout).glibc


def test_all_of_it() -> None:
    assert inside_in(SAID) == Inside(
        nodes=(Access("/dev/nvidia0", 0o666, 65534, 65534), Access("/dev/dri/renderD128", 0o660, 0, 104)),
        module="580.95.05",
        libraries=(("libcuda", "580.95.05"), ("libnvidia-ml", "580.95.05")),
        glibc="2.41",
        gcc="14.2.0",
        toolkits=(Toolkit("13.0", 15, "/opt/cuda-13.0/include"), Toolkit("12.4", None, "/usr/include")),
        users=(User("llama-server.service", 998, frozenset({998, 104})),),
        torches=(
            Torch("2.11.0+cu130", "13.0", "/opt/torch_stack/current"),
            Torch("2.13.0+cpu", "", "/opt/engine/venv"),
        ),
    )
    assert inside_in("") == Inside()


def test_a_library_without_a_version_is_a_stand_in() -> None:
    found = inside_in("library\t/opt/cuda-13.0/lib64/stubs/libcuda.so")
    assert (found.versions("libcuda"), found.stubs) == ((), ("/opt/cuda-13.0/lib64/stubs/libcuda.so",))


def test_several_versions_of_a_library_are_several() -> None:
    found = inside_in("library\t/a/libcuda.so.1.2\nlibrary\t/b/libcuda.so.3.4")
    assert found.versions("libcuda") == ("1.2", "3.4")


@pytest.mark.parametrize(
    ("node", "uid", "gids", "may"),
    [
        (Access("n", 0o666, 65534, 65534), 998, {998}, True),
        (Access("n", 0o660, 0, 0), 998, {998}, False),
        (Access("n", 0o660, 0, 104), 998, {998, 104}, True),
        (Access("n", 0o640, 0, 104), 998, {998, 104}, False),  # to read is not enough
        (Access("n", 0o660, 998, 0), 998, {998}, True),
        (Access("n", 0o660, 0, 0), 0, {0}, True),
        (Access("n", 0o660, 65534, 65534), 0, {0}, False),  # root of a container is nobody to what is not mapped
    ],
)
def test_who_may_use_a_node(node: Access, uid: int, gids: set[int], may: bool) -> None:
    assert User("x.service", uid, frozenset(gids)).may_use(node) is may
