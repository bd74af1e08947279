"""Wheels of a real torch without a card, with all that it asks for, as role ``torch_stack`` takes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from provisioner.wheels.builds import build_of
from tests.torch_extensions import PIP, TORCH
from tests.wheel_files import sha256_of

INSTALLER = Path(__file__).resolve().parents[1] / "roles/torch_stack/files/installer.txt"
TIMEOUT_S = 900


def download_torch(place: Path) -> None:
    """Download it for the Python that runs this, and the role's installer."""
    for words in ((f"torch=={TORCH}",), ("--no-deps", "--require-hashes", "--requirement", str(INSTALLER))):
        command = [sys.executable, *PIP, "download", "--only-binary=:all:", "--dest", place, *words]
        subprocess.run(command, check=True, timeout=TIMEOUT_S)


def wheels_in(folder: Path) -> list[dict[str, str]]:
    """The packages of a folder's wheels, each with its hash; the installer is none of the stack's."""
    builds = {file: build_of(file.name) for file in sorted(folder.glob("*.whl"))}
    return [
        {"name": build.package, "version": str(build.version), "url": file.as_uri(), "sha256": sha256_of(file)}
        for file, build in builds.items()
        if build.package != "uv"
    ]
