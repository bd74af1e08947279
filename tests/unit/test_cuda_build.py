"""The benchmark of the build for CUDA: what was built without it is no figure."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from benchmarks import cuda_build
from benchmarks.measuring import Cost
from provisioner.hosts.base import Provider


class Container:
    """Runs on this machine what is to be run in the container."""

    def connection_variables(self, name: str) -> dict[str, str]:
        """How Ansible gets there."""
        assert name == cuda_build.NAME
        return {"ansible_connection": "local"}

    def execute(self, name: str, command: list[str], *, timeout_s: float) -> Any:
        """What the command did."""
        assert name == cuda_build.NAME
        return subprocess.run(command, capture_output=True, timeout=timeout_s, check=False)


@pytest.mark.parametrize(("cache", "is_for_cuda"), [("GGML_CUDA:BOOL=ON\n", True), ("GGML_CUDA:BOOL=OFF\n", False)])
def test_only_what_was_built_for_cuda_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: str, *, is_for_cuda: bool
) -> None:
    hosts: dict[str, Any] = {}

    def played(command: list[str], _environment: object, _folder: Path) -> Cost:
        hosts.update(yaml.safe_load(Path(command[2]).read_text())["builders"]["hosts"][cuda_build.NAME])
        return Cost(2.0, 1.0)

    (tmp_path / "build").mkdir()
    (tmp_path / "build/CMakeCache.txt").write_text(cache)
    monkeypatch.setattr(cuda_build, "cost", played)
    monkeypatch.setattr(cuda_build, "cpu_s_of", lambda _names: 5.0)
    monkeypatch.setattr(cuda_build, "WORK", str(tmp_path))
    box = cast("Provider", Container())
    if is_for_cuda:
        assert cuda_build.by_role(box, "13.2", "86") == Cost(2.0, 1.0, inside_s=0.0)
    else:
        with pytest.raises(RuntimeError, match="ended with 1"):
            cuda_build.by_role(box, "13.2", "86")
    assert hosts["llama_cpp_backend"] == "cuda"
    assert hosts["llama_cpp_cuda_architectures"] == ["86"]
