"""Runs of the command that are killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

from tests.integration.up.quickstart_lab import Lab
from tests.processes import killed_at_end

ORPHAN_S = 15.0
"""So long Ansible may take to end after the run that began it."""


def begun(lab: Lab) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """An ``up`` of the lab that goes on beside the test, at most until the end of the block."""
    command = [str(Path(sys.executable).parent / "provision"), "up", "--yes"]
    return killed_at_end(
        subprocess.Popen(
            command,
            cwd=lab.folder,
            env={**os.environ, **lab.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    )


def killed_after(lab: Lab, seconds: float, number: signal.Signals) -> bool:
    """Whether the run was still under way when it was killed."""
    with begun(lab) as run:
        try:
            run.wait(seconds)
        except subprocess.TimeoutExpired:
            run.send_signal(number)
            run.wait(60)
            wait_until_gone(f"/run-{run.pid}-")
            return True
    return False


def wait_until_gone(words: str) -> None:
    """Block until no process has ``words`` among its arguments: Ansible ends soon after a run that was killed."""
    deadline = time.monotonic() + ORPHAN_S
    while left := [one for one in Path("/proc").glob("[0-9]*") if words in arguments_of(one)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def arguments_of(process: Path) -> str:
    """The arguments of a process by its folder in /proc; empty when it has ended."""
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""  # it ended meanwhile
