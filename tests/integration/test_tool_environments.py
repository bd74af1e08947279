"""Environments of tools by a real pip: pinned by hash, made once, and made anew where one was half made."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from provisioner.measuring.tools import WHOLE, python_of
from provisioner.values import paths
from provisioner.values.errors import PreflightError
from provisioner.values.events import ApplyComplete, ApplyProgress, Event
from tests.wheel_files import sha256_of, write_wheel


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A list of one wheel that lies in a folder, and no index."""
    wheels, data = tmp_path / "wheels", tmp_path / "data"
    wheels.mkdir()
    (data / "tools").mkdir(parents=True)
    wheel = write_wheel(wheels, "measure-1.0-py3-none-any.whl", files={"measure/__main__.py": b"print('measured')\n"})
    file = data / "tools/measure.txt"
    file.write_text(f"measure==1.0 \\\n    --hash=sha256:{sha256_of(wheel)}\n")
    monkeypatch.setattr(paths, "data", lambda: data)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return file


def run(python: Path) -> str:
    """What the tool says."""
    return subprocess.run([python, "-m", "measure"], capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.usefixtures("listed")
def test_it_is_made_once() -> None:
    said: list[Event] = []
    python = python_of("measure", said.append)
    assert run(python) == "measured\n"
    begun, ended = said
    assert isinstance(begun, ApplyProgress)
    assert isinstance(ended, ApplyComplete), "else it is said to go on for as long as the program runs"
    assert begun.target == ended.target == "measure"
    assert python_of("measure", said.append) == python
    assert len(said) == 2


@pytest.mark.usefixtures("listed")
def test_one_that_was_half_made_is_made_anew() -> None:
    python = python_of("measure", lambda _: None)
    folder = python.parent.parent
    (folder / WHOLE).unlink()
    left = folder / "left"
    left.touch()
    assert python_of("measure", lambda _: None) == python
    assert not left.exists()
    assert run(python) == "measured\n"


def test_another_list_makes_another_one(listed: Path) -> None:
    before = python_of("measure", lambda _: None)
    listed.write_text(listed.read_text() + "# newer\n")
    assert python_of("measure", lambda _: None) != before


def test_a_wheel_with_another_hash_is_refused_and_nothing_counts_as_made(listed: Path) -> None:
    listed.write_text(re.sub("sha256:..", "sha256:00", listed.read_text()))
    for _ in range(2):
        with pytest.raises(PreflightError) as caught:
            python_of("measure", lambda _: None)
        assert "HASH" in str(caught.value.details).upper()
    assert not [*listed.parents[2].rglob(WHOLE)]
