"""Programs that a test starts: none outlives the test, and none is waited for without an end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import AnyStr

from tests.waiting import PATIENCE_S


def completed(
    command: Sequence[str | Path],
    *,
    timeout_s: float,
    given: str = "",
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Return how a program ended and what it said; it reads what is given, and nothing of this process."""
    return subprocess.run(
        command, input=given, cwd=cwd, env=env, timeout=timeout_s, capture_output=True, text=True, check=False
    )


@contextmanager
def killed_at_end(process: subprocess.Popen[AnyStr], *, grace_s: float = 0.0) -> Iterator[subprocess.Popen[AnyStr]]:
    """Kill the program if it still runs when the block ends, with the process group that it leads; close its pipes.

    With ``grace_s`` it is asked to end before, and may take so long.
    """
    leads_group = os.getpgid(process.pid) == process.pid
    try:
        yield process
    finally:
        if process.poll() is None:
            _kill(process, leads_group=leads_group, grace_s=grace_s)
        close_pipes(process)


def _kill(process: subprocess.Popen[AnyStr], *, leads_group: bool, grace_s: float) -> None:
    if grace_s:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
    process.kill()
    if leads_group:
        with suppress(ProcessLookupError):  # nobody of the group is left
            os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE_S)


@contextmanager
def awaited_at_end(
    process: subprocess.Popen[AnyStr], *, within_s: float = PATIENCE_S
) -> Iterator[subprocess.Popen[AnyStr]]:
    """Close the program's pipes when the block ends, and wait for its own end; kill it when that takes longer.

    Raises ``subprocess.TimeoutExpired`` when it was killed. After a failure of the block it is killed at once.
    """
    with killed_at_end(process):
        yield process
        close_pipes(process)
        process.wait(within_s)


def close_pipes(process: subprocess.Popen[AnyStr]) -> None:
    """Close this side of the program's pipes; what was written and is not read by a program that ended is lost."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
