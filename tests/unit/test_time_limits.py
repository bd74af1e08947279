"""A test that hangs fails at its limit, what it set up is taken down, and the run goes on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import time_limits
from tests.molecule.test_scenarios import TIMEOUT_S as SCENARIO_S
from tests.processes import completed
from tests.time_limits import FOLDER, LIMITS_S, SLOW_S, limit_s

HANGS = """
import threading
from pathlib import Path
import pytest

@pytest.fixture
def lab():
    yield
    Path("taken-down").touch()

@pytest.mark.timeout(1)
def test_that_hangs(lab):
    threading.Event().wait()

def test_after_it():
    assert Path("taken-down").exists()
"""
HANGS_AT_ITS_END = """
import threading
import pytest
from tests import time_limits

time_limits.TAKE_DOWN_S = 5

@pytest.fixture
def lab():
    yield
    try:
        threading.Event().wait()
    finally:
        time_limits.TAKE_DOWN_S = 600

def test_that_sets_up(lab):
    pass

def test_after_it():
    pass
"""


def run(folder: Path, text: str, *options: str) -> str:
    """What a run of pytest with these tests says last; it must fail."""
    (folder / "test_one.py").write_text(text, encoding="utf-8")
    plugins = ["-p", "tests.time_limits", "-p", "no:cacheprovider"]
    done = completed(
        [sys.executable, "-m", "pytest", "-q", f"--rootdir={folder}", *plugins, *options, str(folder / "test_one.py")],
        cwd=folder,
        env={"PYTHONPATH": str(FOLDER.parent)},
        timeout_s=300,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "in a worker"])
def test_one_that_hangs_fails_and_the_next_one_runs(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert "1 failed, 1 passed" in run(tmp_path, HANGS, *options)


def test_one_that_hangs_when_it_is_taken_down_fails_and_the_next_one_runs(tmp_path: Path) -> None:
    assert "2 passed, 1 error" in run(tmp_path, HANGS_AT_ITS_END)


def test_each_test_has_the_limit_of_its_folder(request: pytest.FixtureRequest) -> None:
    marker = request.node.get_closest_marker("timeout")
    assert marker.args == (LIMITS_S["unit"],)
    folders = {path.parent.relative_to(FOLDER).parts[0] for path in FOLDER.rglob("test_*.py")}
    assert folders == set(LIMITS_S)
    assert limit_s(FOLDER / "unit/test_x.py", is_slow=True) == SLOW_S
    assert limit_s(Path("/elsewhere/unit/test_x.py"), is_slow=False) is None


def test_a_scenario_that_hangs_is_ended_by_its_own_limit() -> None:
    """It is destroyed afterwards, which may take as long."""
    assert LIMITS_S["molecule"] > 2 * SCENARIO_S
    assert time_limits.TAKE_DOWN_S > SCENARIO_S
