"""Runs a program of others in its environment (``tool_environments``), and gives the lines that it writes.

What it is told reaches it by its standard input, as others see what a command line says. It finds a home of its own and
nothing of ours: no proxy, no key, no cache of another run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

LONGEST_LINE = 2**20
WORDS = 500
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
"""It asks nobody but the service that it measures."""


class ToolError(Exception):
    """It ended badly, or not in time: with the last that it said."""


def lines_of(python: Path, start: str, words: Sequence[str], home: Path, within_s: float) -> Generator[str]:
    """Each line that a program writes, as it comes; it is ended with the iterator.

    ``start``: Python that reads ``words`` as JSON from standard input. Raises ``ToolError`` at its end.
    """
    environment = {"HOME": str(home), "PATH": os.defpath, "LANG": "C.UTF-8", **OFFLINE}
    late = threading.Event()
    with (home / "said").open("w+b") as said:
        process = subprocess.Popen(
            [python, "-I", "-u", "-c", start],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            env=environment,
            cwd=home,
            start_new_session=True,  # it may start more processes, which are ended with it
        )

        def end() -> None:
            late.set()
            _kill(process.pid)

        def end_the_rest() -> None:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # until it is waited for its number is its own
            _kill(process.pid)  # else what it has started would keep its output open

        watch = threading.Timer(within_s, end)
        watch.start()
        rest = threading.Thread(target=end_the_rest, name="end of a tool", daemon=True)
        rest.start()
        try:
            yield from _written(process, words)
            rest.join()
        finally:
            if rest.is_alive():
                _kill(process.pid)
                rest.join()
            watch.cancel()
            process.wait()
        if late.is_set():
            raise ToolError(f"it has not ended in {within_s:.0f} s")
        if process.returncode:
            raise ToolError(_last_of(said.name) or f"it ended with {process.returncode}")


def _kill(group: int) -> None:
    """End all processes of a group that are left of it."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _written(process: subprocess.Popen[bytes], words: Sequence[str]) -> Iterator[str]:
    """Tell it its words, and wait for its lines."""
    stdin, stdout = process.stdin, process.stdout
    if stdin is None or stdout is None:
        raise ToolError("it has no standard input and output")
    with stdout:
        try:
            with stdin:
                stdin.write(json.dumps(words).encode())
        except BrokenPipeError:
            pass  # it ended before it read them, and says why
        while line := stdout.readline(LONGEST_LINE):
            yield line.decode(errors="replace")


def _last_of(file: str) -> str:
    """The last words of a file."""
    text = Path(file).read_bytes()[-4 * WORDS :].decode(errors="replace")
    return " ".join(text.split())[-WORDS:]
