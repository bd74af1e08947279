"""Programs that a test starts: none outlives the test, and none is waited for without an end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
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


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def ended_at_end(
    command: Sequence[str], variables: Mapping[str, str], within_s: float = PATIENCE_S
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Run a program until the block ends, with these variables alone; with it come the lines that it has written."""
    lines: list[str] = []
    with killed_at_end(
        subprocess.Popen(
            command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
    ) as process:
        reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
        reader.start()
        try:
            yield process, lines
        finally:
            process.terminate()
            process.wait(within_s)
            reader.join(within_s)


def _read(process: subprocess.Popen[str], lines: list[str]) -> None:
    assert process.stdout is not None
    with process.stdout as written:
        for line in written:
            lines.append(line.rstrip("\n"))  # noqa: PERF401  # whoever looks meanwhile sees what is there
