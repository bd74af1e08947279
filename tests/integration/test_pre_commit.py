"""The hook as its users have it: the real pre-commit installs this checkout and judges a commit of two labs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import completed

pytestmark = [pytest.mark.network, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
PRE_COMMIT = "pre-commit==4.7.0"
TIMEOUT_S = 900
LAB = """\
name: homelab
hosts:
  box: { incus: local }
models:
  tiny: { source: "builtin:tiny" }
containers:
  llama:
    services:
      llama_cpp: { model: tiny, api_key: !secret llama_key }
"""
CONFIGURATION = """\
repos:
  - repo: {repository}
    rev: {commit}
    hooks:
      - id: provision-validate
"""


def output(*command: str | Path, cwd: Path) -> str:
    """What a command prints that must succeed."""
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True, timeout=TIMEOUT_S).stdout


@pytest.fixture(scope="module")
def pre_commit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    venv = tmp_path_factory.mktemp("pre-commit") / "venv"
    output(sys.executable, "-m", "venv", venv, cwd=ROOT)
    output(venv / "bin/pip", "install", "--quiet", PRE_COMMIT, cwd=ROOT)
    return venv / "bin/pre-commit"


@pytest.fixture
def labs(tmp_path: Path) -> Path:
    """A repository with two labs, whose hook comes from a clone of this checkout's last commit."""
    product = tmp_path / "product"
    output("git", "clone", "--quiet", ROOT, product, cwd=tmp_path)
    commit = output("git", "rev-parse", "HEAD", cwd=product).strip()
    labs = tmp_path / "labs"
    labs.mkdir()
    output("git", "init", "--quiet", cwd=labs)
    text = CONFIGURATION.format(repository=product, commit=commit)
    (labs / ".pre-commit-config.yaml").write_text(text, encoding="utf-8")
    (labs / "homelab.yml").write_text(LAB, encoding="utf-8")
    (labs / "other").mkdir()
    (labs / "other/homelab.yaml").write_text(LAB + "nmae: x\n", encoding="utf-8")
    output("git", "add", "--all", cwd=labs)
    return labs


def test_pre_commit_stops_a_broken_lab_with_its_line_and_lets_a_good_one_pass(
    pre_commit: Path, labs: Path, tmp_path: Path
) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GIT_"))}
    environment["PRE_COMMIT_HOME"] = str(tmp_path / "cache")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(pre_commit), "run", "--color=never", *arguments]
        return completed(command, cwd=labs, env=environment, timeout_s=TIMEOUT_S)

    refused = run("--all-files")
    assert refused.returncode == 1, refused.stdout + refused.stderr
    assert "other/homelab.yaml:10: " in refused.stdout
    assert "homelab.yml is valid" in refused.stdout
    passed = run("--files", "homelab.yml")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "Passed" in passed.stdout
