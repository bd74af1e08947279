"""Yardsticks that are no dependencies: installed on demand, pinned, each in a place of its own in the cache."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from provisioner.values import paths

PYINFRA = "pyinfra==3.10.0"
MITOGEN = "mitogen==0.3.54"
ANSIBLE = "ansible==12.3.0"
"""The package that holds the collections which fit ansible-core 2.19; of it only community.general is taken."""
COLLECTION = "ansible_collections/community/general/"
INSTALL_TIMEOUT_S = 600


class MissingPeerError(Exception):
    """It cannot be had here; the text says why."""


def pyinfra() -> Path:
    """The command ``pyinfra``."""

    def make(folder: Path) -> None:
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        _run([str(folder / "bin/python"), "-m", "pip", "install", "--quiet", PYINFRA])

    return _made(PYINFRA, make) / "bin/pyinfra"


def mitogen() -> Path:
    """The folder to import ``ansible_mitogen`` from."""
    return _made(MITOGEN, lambda folder: _pip("install", "--no-deps", "--target", str(folder), MITOGEN))


def community_general() -> Path:
    """The folder that Ansible's setting for collections has to name."""

    def make(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as place:
            _pip("download", "--no-deps", "--dest", place, ANSIBLE)
            with zipfile.ZipFile(next(Path(place).glob("*.whl"))) as wheel:
                wheel.extractall(folder, [name for name in wheel.namelist() if name.startswith(COLLECTION)])

    return _made(ANSIBLE, make)


def _made(name: str, make: Callable[[Path], None]) -> Path:
    folder = paths.cache() / "benchmarks" / name
    complete = folder.with_name(f"{name}.complete")
    if not complete.exists():
        folder.mkdir(parents=True, exist_ok=True)
        make(folder)
        complete.touch()
    return folder


def _pip(*arguments: str) -> None:
    _run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments])


def _run(command: Sequence[str]) -> None:
    try:
        subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=True
        )
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip() or error.stdout.strip() or "no reason was given").splitlines()[-1]
        raise MissingPeerError(f"{' '.join(command[-2:])}: {last}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingPeerError(str(error)) from error
