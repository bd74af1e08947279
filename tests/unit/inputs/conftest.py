"""A small checkout with tests of its own, and a way to run them as this project's are run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
Run = Callable[..., str]
FILES = {
    "pytest.ini": """
[pytest]
pythonpath = . src
addopts = --import-mode=importlib
testpaths = tests/integration tests/unit tests/lint
""",
    "tests/conftest.py": """
import pytest
pytest_plugins = ["tests.inputs.choice"]

def pytest_addoption(parser):
    parser.addoption("--all", action="store_true")

@pytest.fixture
def helped():
    from benchmarks.helper import HELP
    return HELP
""",
    "tests/integration/test_one.py": "import json\ndef test_a():\n    pass\ndef test_b():\n    pass\n",
    "tests/unit/test_two.py": "def test_c(helped):\n    assert helped\n",
    "tests/lint/test_three.py": "def test_d():\n    pass\n",
    "benchmarks/helper.py": "HELP = True\n",
    "roles/engine/tasks/main.yml": "[]\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The checkout's folder."""
    folder = tmp_path / "checkout"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for ours in ("inputs", "molecule", "checkout.py"):
        (folder / "tests" / ours).symlink_to(ROOT / "tests" / ours)
    return folder


@pytest.fixture
def run(checkout: Path, tmp_path: Path) -> Run:
    """What pytest says in the checkout, with records of its own."""

    def run(*arguments: str, **environment: str) -> str:
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "CI", "PROVISION"))
        }
        paths = {"PYTHONPATH": str(ROOT / "src"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
            cwd=checkout,
            env={**clean, **paths, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return f"{done.stdout}{done.stderr}"

    return run
