"""Programs of built artifacts that are run on this machine to ask them something: taken out of the cache's copy."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from provisioner.services import knowledge_of
from provisioner.values import paths
from provisioner.values.state import Artifact

TIMEOUT_S = 60


def kept_program(name: str) -> Path | None:
    """Return the program of that name; None where no build on this machine has left it."""
    file = _folder() / name
    return file if file.is_file() else None


def keep_program(artifact: Artifact, copy: Path) -> None:
    """Take the program that can be asked out of an artifact's copy, where the artifact has one that is not here yet.

    A copy without it (of another source, or of a version before) leaves none: then nobody can be asked.
    """
    options = {name.removeprefix(f"{artifact.role}_"): value for name, value in artifact.variables.items()}
    path, name = knowledge_of(artifact.role).asked_program(options)
    if not path or kept_program(name):
        return
    command = ["tar", "--extract", "--to-stdout", "--wildcards", f"--file={copy}", f"*/{path}"]
    try:
        ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):  # no tar: nobody is asked
        return
    if ran.returncode != 0 or not ran.stdout:
        return
    _folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = _folder() / f".{name}.{os.getpid()}"
    partial.write_bytes(ran.stdout)
    partial.chmod(0o700)
    partial.replace(_folder() / name)


def _folder() -> Path:
    return paths.cache() / "programs"
