"""The tour of the verbs: each command of ``docs/tour.md`` is run in its order, and prints what stands there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import documented
from tests.documented import Command
from tests.lab.incus import Lab as Incus

pytestmark = pytest.mark.incus

NAME = "tour"
BLOCKS = [block for block in documented.blocks() if block.page == "tour.md"]
(FILE,) = (block.text for block in BLOCKS if block.is_lab)
STEPS = [
    (block.number, command)
    for block in BLOCKS
    if block.language == "console"
    for command in documented.commands(block.text)
]
DESTROY = ["provision", "destroy", "--prune", "--yes", "--lab", NAME]


def ran(command: str | list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        shell=isinstance(command, str),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the tour is made; the lab of an interrupted one is gone before, and this one's afterwards."""
    assert incus_lab
    folder = tmp_path_factory.mktemp(NAME)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        (folder / "homelab.yml").write_text(FILE, encoding="utf-8")
        ran(DESTROY, folder)
        (folder / "homelab.yml").unlink()
        yield folder
        (folder / "homelab.yml").write_text(FILE, encoding="utf-8")
        ended = ran(DESTROY, folder)
        assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize(("number", "command"), STEPS, ids=[command.line for _, command in STEPS])
def test_the_page_says_what_is_printed(folder: Path, number: int, command: Command) -> None:
    # The first block makes a file; the page then goes on with its own.
    if number > 1 and (folder / "homelab.yml").read_text(encoding="utf-8") != FILE:
        (folder / "homelab.yml").write_text(FILE, encoding="utf-8")
    done = ran(command.line, folder)
    assert documented.prints(command.output, documented.without_progress(done.stdout)), done.stdout
    assert bool(done.returncode) == is_refused(command), done.returncode


def is_refused(command: Command) -> bool:
    """Whether the page shows a command that does not do what it was asked for."""
    return command.output.startswith(("Error: ", "bad "))
