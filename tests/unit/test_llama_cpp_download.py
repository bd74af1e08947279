"""A source distribution is downloaded, checked by its hash, without running what it names as its build backend."""

from __future__ import annotations

import ensurepip
import hashlib
import io
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.values import paths
from tests.processes import completed

ROLE = paths.roles() / "llama_cpp"
METADATA = "Metadata-Version: 2.1\nName: llama_cpp_python\nVersion: 9.9\n\nName: not a header\n"
PROJECT = '[build-system]\nrequires = ["scikit-build-core"]\nbuild-backend = "scikit_build_core.build"\n'


def download_task() -> Any:
    """The role's task that downloads the source distribution."""
    tasks = yaml.safe_load((ROLE / "tasks/build_pypi.yml").read_text(encoding="utf-8"))
    return next(task for task in tasks if task["name"].endswith("Download the source distribution"))


def download(folder: Path, sha256: str) -> subprocess.CompletedProcess[str]:
    """Run the role's own command with pip in its wheel, which Python itself brings, and pointed at ``folder``."""
    (bundled,) = (Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl")
    command = download_task()["ansible.builtin.shell"]["cmd"]
    for written, here in (
        ("/usr/share/python-wheels/pip-*.whl", f"{bundled.parent}/pip-*.whl"),
        ("{{ __llama_cpp_work }}/backend", str(ROLE / "files")),
        ("python3 -m pip", f"{sys.executable} -m pip"),
    ):
        assert written in command
        command = command.replace(written, here)
    return completed(
        ["sh", "-c", f"{command} --no-index --find-links {folder}"],
        given=f"llama-cpp-python==9.9 --hash=sha256:{sha256}",
        cwd=folder,
        timeout_s=120,
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
