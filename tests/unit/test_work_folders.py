"""Leftovers of killed runs: what is ours goes, whoever else sweeps; what others put there stops nobody."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from provisioner.hosts.proxmox import ssh
from provisioner.reconcile import runner
from provisioner.values.state import Secret
from provisioner.values.work_folders import by_age, own_folder, prune, sweep
from tests.unit.reconcile.test_runner import INVENTORY

GONE = 4194305
"""No process has a number above 2^22."""


def left_behind(parent: Path, number: int, files: int = 5) -> Path:
    """What a killed run left."""
    folder = parent / f"run-{GONE + number}-x"
    for name in ("artifacts", "env", "inventory"):
        (folder / name).mkdir(parents=True)
        for one in range(files):
            (folder / name / str(one)).write_text("x")
    return folder


def hostile(parent: Path, target: Path, kind: str) -> list[Path]:
    """What another user can put there."""
    made = [parent / f"{kind}-{GONE}-{name}" for name in ("link", "dangling", "loop", "file", "pipe")]
    made[0].symlink_to(target)
    made[1].symlink_to(parent / "nowhere")
    made[2].symlink_to(made[2])
    made[3].write_text("x")
    os.mkfifo(made[4])
    made.append(parent / f"{kind}-{'9' * 200}-x")
    made[-1].mkdir()
    return made


def test_links_and_files_with_our_names_stop_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, precious = tmp_path / "shm", tmp_path / "precious"
    shared.mkdir()
    precious.mkdir()
    (precious / "file").write_text("x")
    made = hostile(shared, precious, "provision")
    monkeypatch.setattr(runner, "SECRETS_MEMORY", shared)
    playbook = tmp_path / "play.yml"
    playbook.write_text(
        "- hosts: all\n  gather_facts: false\n  tasks: [{ name: Nothing, ansible.builtin.meta: noop }]\n"
    )
    result = runner.run_playbook(str(playbook), INVENTORY, folder=tmp_path / "lab", secrets=[Secret("a", "canary")])
    result.raise_for_failure("run the test")
    assert (precious / "file").exists()
    assert sorted(shared.iterdir()) == sorted(made), "what is not ours stays, what is ours goes"


def test_folders_of_other_users_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = left_behind(tmp_path, 0)
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    sweep(tmp_path, "run")
    assert folder.is_dir()
    monkeypatch.setattr(os, "getuid", lambda: owner)
    sweep(tmp_path, "run")
    assert not folder.exists()


def swept(parent: Path, ready: Barrier) -> None:
    """One sweeper: it begins with the others."""
    ready.wait(30)
    with own_folder(parent, "run") as private:
        assert private.is_dir()


@pytest.mark.parametrize("sweepers", [2, 5])
def test_any_number_may_sweep_at_once(tmp_path: Path, sweepers: int) -> None:
    for number in range(40):
        left_behind(tmp_path, number)
    ready = multiprocessing.get_context("fork").Barrier(sweepers)
    started = [
        multiprocessing.get_context("fork").Process(target=swept, args=(tmp_path, ready)) for _ in range(sweepers)
    ]
    for one in started:
        one.start()
    for one in started:
        one.join(60)
    assert [one.exitcode for one in started] == [0] * sweepers
    assert list(tmp_path.iterdir()) == []


def pruned(parent: Path, ready: Barrier) -> None:
    """One that keeps the newest logs: it begins with the others."""
    ready.wait(30)
    prune(parent.glob("*.log"), 3)
    by_age(parent.glob("*.log"))


def test_any_number_may_prune_at_once(tmp_path: Path) -> None:
    for number in range(300):
        file = tmp_path / f"{number}.log"
        file.touch()
        os.utime(file, (number, number))
    ready = multiprocessing.get_context("fork").Barrier(4)
    started = [multiprocessing.get_context("fork").Process(target=pruned, args=(tmp_path, ready)) for _ in range(4)]
    for one in started:
        one.start()
    for one in started:
        one.join(60)
    assert [one.exitcode for one in started] == [0] * 4
    assert [one.name for one in by_age(tmp_path.iterdir())] == ["297.log", "298.log", "299.log"]


def test_a_socket_folder_that_somebody_else_took_is_passed_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "SOCKET_PATH_BYTES", 4096)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    taken = tmp_path / "provision"
    taken.symlink_to(tmp_path)
    found = ssh.socket_folder()
    assert found != taken
    assert found.lstat().st_uid == os.getuid()
    taken.unlink()
    assert ssh.socket_folder() == taken
