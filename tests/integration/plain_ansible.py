"""``ansible-playbook`` as somebody has it who never heard of this package."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.processes import completed

TIMEOUT_S = 900.0


@pytest.fixture(scope="module")
def ansible(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a venv that sees ansible-core and not this package."""
    folder = tmp_path_factory.mktemp("plain") / "venv"
    venv.create(folder, with_pip=False)
    python = folder / "bin/python"
    find = "import sysconfig; print(sysconfig.get_path('purelib'))"
    target = Path(
        subprocess.run([python, "-c", find], capture_output=True, text=True, check=True, timeout=120).stdout.strip()
    )
    # A plain path: .pth files that lie in it, such as that of the editable package, are not read.
    (target / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    missing = completed([python, "-I", "-c", "import provisioner"], timeout_s=120)
    assert "No module named 'provisioner'" in missing.stderr
    return python


def play(
    python: Path, folder: Path, *arguments: str, environment: Mapping[str, str], timeout_s: float = TIMEOUT_S
) -> str:
    """What ``ansible-playbook`` says in the folder; its last line is its exit code."""
    program = Path(sys.executable).parent / "ansible-playbook"
    clean = {key: one for key, one in os.environ.items() if not key.startswith(("ANSIBLE_", "PROVISION_", "PYTHON"))}
    done = completed([python, program, *arguments], cwd=folder, env={**clean, **environment}, timeout_s=timeout_s)
    return f"{done.stdout}{done.stderr}\nrc={done.returncode}"
