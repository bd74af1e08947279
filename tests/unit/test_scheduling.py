"""Two workers never use at once what only one of them can."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scheduling import TOGETHER, is_too_late, rank, scope

REACHES = ("tests",)


@pytest.mark.parametrize(
    ("nodeid", "name"),
    [
        ("tests/integration/up/test_drift.py::test_one[a::b]", "artifacts"),
        ("tests/molecule/test_scenarios.py::test_scenario[base]", "artifacts"),
        ("tests/integration/cluster/test_cluster_check.py::test_one", "cluster"),
        ("tests/integration/test_incus.py::test_one[a::b]", "tests/integration/test_incus.py"),
        ("tests/unit/cluster/test_facts.py::test_one", "tests/unit/cluster/test_facts.py"),
    ],
)
def test_tests_with_something_in_common_have_one_scope(nodeid: str, name: str) -> None:
    assert scope(nodeid) == name


def test_the_longest_come_first_where_there_are_two_workers() -> None:
    files = ["molecule/test_scenarios.py", "unit/test_plan.py", "integration/up/test_drift.py", "lint/test_linters.py"]
    assert [name.split("/")[-2] for name in sorted(files, key=lambda name: rank(name, workers=True))] == [
        "up",
        "lint",
        "unit",
        "molecule",
    ]
    assert [name.split("/")[-2] for name in sorted(files, key=lambda name: rank(name, workers=False))] == [
        "lint",
        "unit",
        "up",
        "molecule",
    ]


def test_every_folder_that_is_kept_together_is_there(root: Path) -> None:
    assert [folder for folder in TOGETHER if not (root / folder).is_dir()] == []


def test_whole_labs_are_run_from_their_folder_alone(root: Path) -> None:
    """They delete volumes of the lab's Incus that other tests of that folder may be about to use."""
    runs = [
        file
        for folder in ("unit", "integration")
        for file in (root / "tests" / folder).rglob("*.py")
        if "tests.integration.up" in file.read_text(encoding="utf-8") and file != Path(__file__)
    ]
    outside = [file.name for file in runs if file.parent.name != "up"]
    assert runs
    assert outside == []


@pytest.mark.parametrize(
    ("path", "elapsed_s", "is_late"),
    [
        ("integration/up/test_quickstart.py", 59.0, False),
        ("integration/up/test_quickstart.py", 61.0, True),
        ("unit/test_plan.py", 61.0, False),
        ("molecule/test_scenarios.py", 61.0, False),
        ("", 61.0, False),
    ],
)
def test_only_real_tests_are_left_for_another_run(path: str, elapsed_s: float, is_late: bool) -> None:
    assert is_too_late(path, elapsed_s=elapsed_s, budget_s=60.0) == is_late


def test_what_is_left_for_another_run_is_told(root: Path, tmp_path: Path) -> None:
    """A run whose time is over before it begins: its real tests are skipped with the reason."""
    words = ["--integration-minutes", "0", "-p", "no:cacheprovider", "-rs", "-q"]
    command = [sys.executable, "-m", "pytest", *words, "tests/integration/up/test_tour.py"]
    environment = {**os.environ, "HOME": str(tmp_path), "PROVISION_TEST_STARTED": "1"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left for another run: 0 minutes of this one are over" in done.stdout
    assert " passed" not in done.stdout
