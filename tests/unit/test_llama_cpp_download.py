"""A source distribution is downloaded, checked by its hash, without running what it names as its build backend."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.values import paths

ROLE = paths.roles() / "llama_cpp"
METADATA = "Metadata-Version: 2.1\nName: llama_cpp_python\nVersion: 9.9\n\nName: not a header\n"
PROJECT = '[build-system]\nrequires = ["scikit-build-core"]\nbuild-backend = "scikit_build_core.build"\n'


def download_task() -> Any:
    """The role's task that downloads the source distribution."""
    tasks = yaml.safe_load((ROLE / "tasks/build_pypi.yml").read_text(encoding="utf-8"))
    return next(task for task in tasks if task["name"].endswith("Download the source distribution"))


def download(folder: Path, sha256: str) -> subprocess.CompletedProcess[str]:
    """Run the role's own command with pip pointed at ``folder``."""
    arguments = download_task()["ansible.builtin.command"]["argv"][1:]
    arguments = [argument.replace("{{ __llama_cpp_work }}", str(folder)) for argument in arguments]
    return subprocess.run(
        [sys.executable, *arguments, "--no-index", "--find-links", str(folder)],
        input=f"llama-cpp-python==9.9 --hash=sha256:{sha256}",
        env=os.environ | {"PYTHONPATH": str(ROLE / "files")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def distribution(tmp_path: Path) -> Path:
    """A source distribution that nobody could build."""
    file = tmp_path / "llama_cpp_python-9.9.tar.gz"
    with tarfile.open(file, "w:gz") as archive:
        for name, text in (("PKG-INFO", METADATA), ("pyproject.toml", PROJECT)):
            member = tarfile.TarInfo(f"llama_cpp_python-9.9/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return file


def test_it_is_downloaded_whole(distribution: Path) -> None:
    sha256 = hashlib.sha256(distribution.read_bytes()).hexdigest()
    answer = download(distribution.parent, sha256)
    assert answer.returncode == 0, answer.stderr
    assert (distribution.parent / "download" / distribution.name).read_bytes() == distribution.read_bytes()


def test_another_hash_is_refused(distribution: Path) -> None:
    answer = download(distribution.parent, "0" * 64)
    assert answer.returncode != 0
    assert "DO NOT MATCH THE HASHES" in answer.stderr
