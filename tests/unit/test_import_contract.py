"""The layers hold, and the contract that says so would notice when they did not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.case_files import read_cases
from tests.processes import completed

CASES = read_cases("import_contract")

ROOT = Path(__file__).resolve().parents[2]
LINT_IMPORTS = Path(sys.executable).parent / "lint-imports"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package that a test may break, and the contract."""
    folder = tmp_path_factory.mktemp("layers")
    shutil.copytree(ROOT / "src/provisioner", folder / "provisioner", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def contract(folder: Path) -> subprocess.CompletedProcess[str]:
    return completed(
        (LINT_IMPORTS, "--no-cache"), cwd=folder, env={"PYTHONPATH": str(folder), "COLUMNS": "200"}, timeout_s=300
    )


def test_the_layers_hold(copy: Path) -> None:
    done = contract(copy)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("module", "statement", "broken"), CASES["a broken layer is found"])
def test_a_broken_layer_is_found(copy: Path, module: str, statement: str, broken: str) -> None:
    file = copy / "provisioner" / module
    if not file.exists() and module != "anything.py":
        file = copy / "provisioner" / file.stem / "__init__.py"
    before = file.read_text() if file.exists() else None
    file.write_text(f"{before or ''}\n{statement}\n")
    try:
        done = contract(copy)
    finally:
        file.unlink() if before is None else file.write_text(before)
    assert done.returncode == 1
    assert broken in done.stdout
