"""What continuous integration does with a test that fails: once more, with its file, and by name; twice is failed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import completed

TIMEOUT_S = 120
ROOT = Path(__file__).resolve().parents[2]
ALWAYS = "def test_{n}():\n    assert False\n"
ONCE = """
from pathlib import Path

def test_once():
    met = Path(__file__).with_name("met")
    first = not met.exists()
    met.touch()
    assert not first
"""
STORY = f"""
told = []
def test_begins():
    told.append("once upon a time")
{ONCE}
    assert told
"""
PASSES = "def test_passes():\n    print('again', file=open('passed', 'a'))\n"


def run(folder: Path, tests: str, *, recipe: str = "@.venv/bin/pytest") -> subprocess.CompletedProcess[str]:
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", folder / ".ci/run")
    (folder / "Makefile").write_text(f"test:\n\t{recipe}\ntest-changed:\n\t@true\n", encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (folder / "test_some.py").write_text(tests, encoding="utf-8")
    (folder / ".venv").symlink_to(Path(sys.executable).parents[1])
    return completed(["bash", ".ci/run"], cwd=folder, timeout_s=TIMEOUT_S)


def test_what_fails_once_is_tried_with_its_file_and_named(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(PASSES, encoding="utf-8")
    done = run(tmp_path, STORY)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("unsteady, failed once and passed the second time:\ntest_some.py::test_once\n")
    assert (tmp_path / "passed").read_text(encoding="utf-8").count("again") == 1


def test_a_scenario_of_molecule_is_tried_without_the_others(tmp_path: Path) -> None:
    place = tmp_path / "tests/molecule"
    place.mkdir(parents=True)
    (place / "test_scenarios.py").write_text(ONCE + PASSES, encoding="utf-8")
    done = run(tmp_path, "")
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "passed").read_text(encoding="utf-8").count("again") == 1


def test_what_fails_twice_has_failed(tmp_path: Path) -> None:
    done = run(tmp_path, ALWAYS.format(n=1) + PASSES)
    assert done.returncode != 0
    assert "tried once more:\ntest_some.py::test_1\n" in done.stdout
    assert "unsteady" not in done.stdout


def test_many_failures_are_not_tried_again(tmp_path: Path) -> None:
    done = run(tmp_path, "".join(ALWAYS.format(n=n) for n in range(6)))
    assert done.returncode != 0
    assert "more than 5 tests failed: none is tried again" in done.stdout


LEAVES = "def test_leaves():\n    open('left.cfg', 'w')\n"


@pytest.mark.parametrize("tests", [LEAVES, LEAVES + ONCE])
def test_a_file_that_a_test_leaves_in_the_checkout_is_named_and_fails_the_run(tmp_path: Path, tests: str) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True, timeout=TIMEOUT_S)
    (tmp_path / ".gitignore").write_text("__pycache__\n.pytest_cache\nmet\n", encoding="utf-8")
    done = run(tmp_path, tests)
    assert done.returncode != 0
    assert done.stdout.endswith("which was not there before:\n?? left.cfg\n"), done.stdout


def test_what_was_in_the_checkout_before_is_no_fault_of_the_tests(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True, timeout=TIMEOUT_S)
    (tmp_path / ".gitignore").write_text("__pycache__\n.pytest_cache\npassed\n", encoding="utf-8")
    (tmp_path / "mine.cfg").touch()
    assert run(tmp_path, PASSES).returncode == 0


@pytest.mark.parametrize("recipe", ["@false", "@kill -9 $$PPID"])
def test_a_run_that_came_to_no_result_has_failed(tmp_path: Path, recipe: str) -> None:
    done = run(tmp_path, PASSES, recipe=recipe)
    assert done.returncode != 0
    assert "once more" not in done.stdout


@pytest.mark.parametrize("noted", ["{}", "{", ""])
def test_where_no_test_is_noted_nothing_is_tried_again(tmp_path: Path, noted: str) -> None:
    recipe = f"@mkdir -p .pytest_cache/v/cache; printf '{noted}' > .pytest_cache/v/cache/lastfailed; false"
    done = run(tmp_path, PASSES, recipe=recipe)
    assert done.returncode != 0
    assert "once more" not in done.stdout
    assert not (tmp_path / "passed").exists()
