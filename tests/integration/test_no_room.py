"""Every verb on file systems that are full or cannot be written: nothing is unforeseen, the exit codes are right."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from provisioner.reconcile.runner import run_playbook
from provisioner.values.state import Secret
from tests.unit.cli.conftest import World, lab, world
from tests.unit.cli.test_no_room import CALLS, CODES
from tests.unit.reconcile.test_runner import INVENTORY

__all__ = ["lab", "world"]  # fixtures

PLACES = {".provision": ".provision", "cache": "cache", "state": "state", "lab": "."}


@contextmanager
def spoiled(folder: Path, fault: str) -> Iterator[None]:
    """The folder, with what is in it, on a small file system that is full or can only be read."""
    folder.mkdir(exist_ok=True)
    kept = folder.parent / f"{folder.name}.kept"
    shutil.copytree(folder, kept, symlinks=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", str(folder)], check=True, timeout=30)
    try:
        shutil.copytree(kept, folder, dirs_exist_ok=True, symlinks=True)
        if fault == "read-only":
            subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True, timeout=30)
        else:
            _fill(folder / "filler")
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=30)


def _fill(file: Path) -> None:
    subprocess.run(["dd", "if=/dev/zero", f"of={file}", "bs=4k"], capture_output=True, check=False, timeout=30)
    assert os.statvfs(file).f_bavail == 0


@pytest.fixture
def root_only() -> None:
    """Only root mounts file systems."""
    if os.getuid():
        pytest.skip("needs root: it mounts small file systems")


@pytest.mark.usefixtures("root_only")
@pytest.mark.parametrize("fault", ["read-only", "full"])
@pytest.mark.parametrize("place", sorted(PLACES))
def test_no_verb_is_surprised(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, fault: str
) -> None:
    if place != "cache":
        world.command("up", "--yes")
    folder = tmp_path / PLACES[place]
    with spoiled(folder, fault):
        monkeypatch.chdir(tmp_path)  # what is mounted, and not what lies below it
        refused = 0
        for calls in CALLS.values():
            for call in calls:
                answer = world.command(*(word.format(place=folder) for word in call))
                assert "does not foresee" not in answer.err, (call, answer.err)
                assert "Traceback" not in answer.err, (call, answer.err)
                if "No space left" in answer.err or "Read-only file system" in answer.err:
                    refused += 1
                    _require_words(call, answer.code, answer.err, folder)
        assert refused, "it was of no consequence anywhere"


def _require_words(call: tuple[str, ...], code: int, said: str, folder: Path) -> None:
    """It says where, and what to do; nothing was touched, or the command ended well with a warning."""
    assert str(folder) in said or str(folder) == str(Path.cwd()), (call, said)
    if code:
        assert code in CODES.get(call[0], (4,)), (call, code, said)
        assert "What to do:" in said, (call, said)


@pytest.mark.usefixtures("root_only")
@pytest.mark.parametrize("fault", ["read-only", "full"])
@pytest.mark.parametrize("place", ["lab", "memory"])
def test_a_run_of_ansible_says_where_there_was_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, fault: str
) -> None:
    from provisioner.cli.faults import fault_of
    from provisioner.reconcile import runner

    playbook = tmp_path / "play.yml"
    playbook.write_text(
        "- hosts: all\n  gather_facts: false\n  tasks: [{ name: Nothing, ansible.builtin.meta: noop }]\n"
    )
    memory, folder = tmp_path / "memory", tmp_path / "lab"
    memory.mkdir()
    monkeypatch.setattr(runner, "SECRETS_MEMORY", memory)
    with spoiled(tmp_path / place, fault), pytest.raises(OSError, match=r"No space|Read-only") as caught:
        run_playbook(str(playbook), INVENTORY, folder=folder, secrets=[Secret("a", "canary")])
    fault_said = fault_of(caught.value, begun=True)
    assert fault_said is not None
    assert fault_said.exit_code == 1
