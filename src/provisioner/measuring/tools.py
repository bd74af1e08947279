"""Programs of others that measure, on this machine: their pinned environments, and the lines that they write."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic

from provisioner.values import paths
from provisioner.values.errors import PreflightError
from provisioner.values.events import ApplyComplete, ApplyProgress, Event

LAST_WORDS = 500
"""Characters of the last that a program said, where it failed."""

# Environments of Python, pinned by hash, and made when they are first used.
#
# Each lies in the cache under the sum of its list and of the Python that it was made for; what was half made is made
# anew. Nothing is built: wheels alone are installed.

LISTS = "tools"
"""The folder of pinned lists in our data, and of environments in the cache."""
WHOLE = "whole"
"""A file of this name says that an environment was made to its end."""
FIRST: Mapping[str, tuple[str, str]] = {"guidellm": ("guidellm-torch", "https://download.pytorch.org/whl/cpu")}
"""A list that is installed before a tool's own, and the index where its packages are as well.

PyTorch's builds for the processor are not on PyPI; whatever else is looked for at that index would be looked for twice.
"""
PIP = (
    *("-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--quiet"),
    *("--no-deps", "--require-hashes", "--only-binary", ":all:"),
)
"""Lists are whole: nothing else is looked for."""
INSTALLING = "installing"
LONGEST_S = 1800


def is_made(tool: str) -> bool:
    """Whether the environment of a tool is there."""
    return (_folder_of(tool) / WHOLE).exists()


def python_of(tool: str, emit: Callable[[Event], None]) -> Path:
    """The Python of the environment of a tool, which is made where there is none yet.

    Raises ``PreflightError`` with what pip said where it cannot be made.
    """
    folder = _folder_of(tool)
    python = folder / "bin/python"
    with _alone(folder):
        if not (folder / WHOLE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            began = monotonic()
            emit(ApplyProgress(tool, f"{INSTALLING} it for the first time"))
            _run([sys.executable, "-m", "venv", str(folder)], tool)
            for listed, index in _lists_of(tool):
                more = ["--extra-index-url", index] if index else []
                _run([str(python), *PIP, *more, "--requirement", str(listed)], tool)
            (folder / WHOLE).touch()
            emit(ApplyComplete(tool, INSTALLING, monotonic() - began))
    return python


def _lists_of(tool: str) -> Iterator[tuple[Path, str]]:
    """What is installed, one list after the other, each with one more index where it needs that."""
    if tool in FIRST:
        name, index = FIRST[tool]
        yield paths.data() / LISTS / f"{name}.txt", index
    yield paths.data() / LISTS / f"{tool}.txt", ""


def _folder_of(tool: str) -> Path:
    """Where its environment lies: another one for other lists and another Python."""
    version = f"{sys.implementation.cache_tag} {sys.platform}"
    content = b"".join(listed.read_bytes() for listed, _ in _lists_of(tool))
    return paths.cache() / LISTS / f"{tool}-{hashlib.sha256(version.encode() + content).hexdigest()[:16]}"


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Have no other run make the same environment meanwhile."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str], tool: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        said = done.stderr.strip() if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error) or type(error).__name__
    if said:
        raise PreflightError(
            f"Unable to install {tool} on this machine",
            details=said[-LAST_WORDS:],
            resolution="It needs Python's index of packages once. Try again where that can be reached.",
        )


# Runs of a program in its environment, for the lines that it writes.
#
# What it is told reaches it by its standard input, as others see what a command line says. It finds a home of its own
# and nothing of ours: no proxy, no key, no cache of another run.

LONGEST_LINE = 2**20
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
    text = Path(file).read_bytes()[-4 * LAST_WORDS :].decode(errors="replace")
    return " ".join(text.split())[-LAST_WORDS:]
