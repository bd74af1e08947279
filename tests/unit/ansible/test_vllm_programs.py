"""The programs of role ``vllm``: how the server is started, and which parsers it has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from provisioner.values import paths
from tests.scenario_programs import module_at

PROGRAMS = paths.roles() / "vllm/programs"
SCENARIO = Path(__file__).resolve().parents[3] / "molecule/vllm/files/vllm"
KEY, FORMER = "canary-of-now-0123456789", "canary-of-before-0123456789"
FAKE = """\
import json, os, sys
def main():
    import importlib
    names = ("VLLM_API_KEY", "PROVISION_FORMER_KEY_FILE", "PROVISION_KEY_GRACE_S")
    made = []
    if "--middleware" in sys.argv:
        module, _, name = sys.argv[-1].rpartition(".")
        made = [type(getattr(importlib.import_module(module), name)(None)).__mro__[1].__name__]
    environment = {name: os.environ.get(name) for name in names}
    json.dump({"argv": sys.argv, "environment": environment, "made": made}, sys.stdout)
"""


@pytest.fixture
def started(tmp_path: Path) -> Any:
    """Start the launcher with a vLLM that says how it was started."""
    package = tmp_path / "packages/vllm/entrypoints/cli"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    (package / "main.py").write_text(FAKE, encoding="utf-8")

    def start(key_file: Path, former_file: Path, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(PROGRAMS / "launch.py"), str(key_file), str(former_file), "900", *words]
        environment = {"PYTHONPATH": str(package.parents[2]), "PATH": os.environ["PATH"]}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)

    return start


def test_the_key_is_in_the_environment_and_in_no_argument(started: Any, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n", encoding="utf-8")
    done = started(tmp_path / "key", tmp_path / "former", "/srv/models/a", "--port", "18000")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["argv"] == ["vllm", "serve", "/srv/models/a", "--port", "18000"]
    assert told["environment"]["VLLM_API_KEY"] == KEY


def test_a_former_key_has_the_server_take_it_too(started: Any, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY, encoding="utf-8")
    (tmp_path / "former").write_text(FORMER, encoding="utf-8")
    told = json.loads(started(tmp_path / "key", tmp_path / "former", "model").stdout)
    assert told["argv"][-2:] == ["--middleware", "launch.WithFormerKey"]
    assert told["made"] == ["FormerKey"]
    assert FORMER not in str(told)
    os.utime(tmp_path / "former", (1, 1))
    assert json.loads(started(tmp_path / "key", tmp_path / "former", "model").stdout)["argv"][-1] == "model"


@pytest.mark.parametrize("content", ["", "\n", None])
def test_without_a_key_nothing_is_started(started: Any, tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "key").write_text(content, encoding="utf-8")
    done = started(tmp_path / "key", tmp_path / "former", "model")
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.startswith("Unable to start vLLM: ")


parsers = module_at(PROGRAMS / "parsers.py")


def test_the_names_of_parsers_are_read_and_nothing_is_run() -> None:
    assert parsers.parsers_of(SCENARIO) == {
        "reasoning": ["deepseek_r1", "qwen3"],
        "tool": ["granite-20b-fc", "hermes"],
    }


@pytest.mark.parametrize("source", ["", "_TOOL = {}", "_OTHER = {'a': 1}", "_TOOL_PARSERS_TO_REGISTER = make()"])
def test_a_vllm_that_lists_them_in_another_way_is_told(source: str) -> None:
    with pytest.raises(LookupError, match="is not assigned there"):
        parsers.names_in(source, "_TOOL_PARSERS_TO_REGISTER")


def test_an_interpreter_without_vllm_is_told() -> None:
    command = [sys.executable, "-Ic", (PROGRAMS / "parsers.py").read_text(encoding="utf-8")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "there is no vLLM in it\n")
