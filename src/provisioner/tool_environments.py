"""Environments of Python for programs of others that run on this machine: pinned by hash, made when first used.

Each lies in the cache under the sum of its list and of the Python that it was made for; what was half made is made
anew. Nothing is built: wheels alone are installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from provisioner.values import paths
from provisioner.values.errors import PreflightError
from provisioner.values.events import ApplyProgress, Event

LISTS = "tools"
"""The folder of pinned lists in our data, and of environments in the cache."""
WHOLE = "whole"
"""A file of this name says that an environment was made to its end."""
MORE_INDEXES = {"guidellm": "https://download.pytorch.org/whl/cpu"}
"""Where pip looks besides: PyTorch's own builds for the processor, which PyPI does not have."""
LONGEST_S = 1800
DETAILS = 500


def is_made(tool: str) -> bool:
    """Whether the environment of a tool is there."""
    return (_folder_of(tool) / WHOLE).exists()


def python_of(tool: str, emit: Callable[[Event], None]) -> Path:
    """The Python of the environment of a tool, which is made where there is none yet.

    Raises ``PreflightError`` with what pip said where it cannot be made.
    """
    listed, folder = _list_of(tool), _folder_of(tool)
    python = folder / "bin/python"
    with _alone(folder):
        if not (folder / WHOLE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            emit(ApplyProgress(tool, "installing it for the first time"))
            _run([sys.executable, "-m", "venv", str(folder)], tool)
            pip = [str(python), "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--quiet"]
            pip += ["--extra-index-url", MORE_INDEXES[tool]] if tool in MORE_INDEXES else []
            _run([*pip, "--require-hashes", "--only-binary", ":all:", "--requirement", str(listed)], tool)
            (folder / WHOLE).touch()
    return python


def _list_of(tool: str) -> Path:
    return paths.data() / LISTS / f"{tool}.txt"


def _folder_of(tool: str) -> Path:
    return paths.cache() / LISTS / f"{tool}-{_sum_of(_list_of(tool))}"


def _sum_of(listed: Path) -> str:
    version = f"{sys.implementation.cache_tag} {sys.platform}"
    return hashlib.sha256(version.encode() + listed.read_bytes()).hexdigest()[:16]


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
            details=said[-DETAILS:],
            resolution="It needs Python's index of packages once. Try again where that can be reached.",
        )
