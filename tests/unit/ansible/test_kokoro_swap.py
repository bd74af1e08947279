"""How role ``kokoro`` puts a new checkout in the place of the one before: whole at every moment that it can end at."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

TASKS = Path(__file__).resolve().parents[3] / "roles/kokoro/tasks/install.yml"
NAME = "install | Put it in the place of the one before"
LAST = '#!/bin/sh\nfor last; do :; done\n[ -e "$last" ] || [ {program} = mv ] || exit 0\n'
ENDS = {
    "in the middle of what it removes": ("rm", '/bin/rm "$last/a"; exit 1', "new"),
    "before the new one is there": ("mv", 'case "$last" in *.gone) exec /bin/mv "$@";; esac; exit 1', ""),
    "before anything": ("mv", "exit 1", "old"),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The one before, two files beside the two of the one that was fetched."""
    for name, content in (("at", "old"), ("at.fetched", "new")):
        (tmp_path / name).mkdir()
        for file in ("a", "b"):
            (tmp_path / name / file).write_text(content, encoding="utf-8")
    return tmp_path / "at"


def swapped(place: Path, programs: str = "") -> int:
    """Run what the task runs, with ``programs`` before the system's; its exit status."""
    tasks = {one["name"]: one for one in yaml.safe_load(TASKS.read_text(encoding="utf-8"))}
    command = tasks[NAME]["ansible.builtin.shell"]["cmd"]
    found = f"{programs}:{os.environ['PATH']}".lstrip(":")
    environment = {"PATH": found, "OLD": str(place), "NEW": f"{place}.fetched"}
    return subprocess.run(["/bin/sh", "-c", command], env=environment, check=False, timeout=60).returncode


def content(place: Path) -> list[str]:
    """What its files hold."""
    return [one.read_text(encoding="utf-8") for one in sorted(place.glob("*"))]


def test_the_new_one_takes_the_place(place: Path) -> None:
    assert swapped(place) == 0
    assert [one.name for one in place.parent.iterdir()] == ["at"]
    assert content(place) == ["new", "new"]


def test_there_may_be_none_before(place: Path) -> None:
    place.rename(place.with_name("at.gone"))
    assert swapped(place) == 0
    assert [one.name for one in place.parent.iterdir()] == ["at"]


@pytest.mark.parametrize(("program", "does", "there"), ENDS.values(), ids=ENDS)
def test_one_that_ends_leaves_a_whole_one_or_none(place: Path, program: str, does: str, there: str) -> None:
    stub = place.parent / "programs" / program
    stub.parent.mkdir()
    stub.write_text(LAST.format(program=program) + does, encoding="utf-8")
    stub.chmod(0o755)
    assert swapped(place, str(stub.parent)) == 1
    assert content(place) == [there] * 2 * bool(there)
