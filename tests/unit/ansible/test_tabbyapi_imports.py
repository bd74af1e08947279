"""How role ``tabbyapi`` tells which modules an interpreter cannot import."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

from tests.processes import completed

FILES = Path(__file__).resolve().parents[3] / "roles/tabbyapi/programs"


def test_imports_that_fail_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise OSError('no such library')", encoding="utf-8")
    command = [sys.executable, str(FILES / "imports.py"), "json", "broken", "not_there"]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True, timeout=60
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["failed"] == {
        "broken": "OSError: no such library",
        "not_there": "ModuleNotFoundError: No module named 'not_there'",
    }
    assert answer["python"] == platform.python_version()


def test_a_module_that_takes_the_process_with_it_is_the_last_that_was_named(tmp_path: Path) -> None:
    (tmp_path / "crash.py").write_text("import os; os.abort()", encoding="utf-8")
    command = [sys.executable, str(FILES / "imports.py"), "json", "crash", "re"]
    done = completed(command, env={"PYTHONPATH": str(tmp_path)}, timeout_s=60)
    assert done.returncode != 0
    assert done.stdout.splitlines() == ["json", "crash"]
