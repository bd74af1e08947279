"""Every linter, over the whole tree, as one test each: what it says is the failure's text."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.ansible_environment import ansible_environment
from tests.checkout import tracked_files
from tests.inputs.choice import leaves_out, records_folder
from tests.inputs.digests import Digests
from tests.inputs.lintables import changed, lintables, remember

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 300
SHELLS = (b"#!/usr/bin/env bash", b"#!/bin/bash", b"#!/bin/sh")

LINTERS: dict[str, tuple[str, ...]] = {
    "ruff check": ("ruff", "check"),
    "ruff format": ("ruff", "format", "--check", "--diff"),
    "mypy": ("mypy",),
    "imports": ("lint-imports", "--no-cache"),
    "yamllint": ("yamllint", "--strict", "."),
    "generated files": ("python", "-m", "provisioner.generate", "--check"),
}


def run(command: tuple[str, ...]) -> None:
    """Fail with the command's whole output unless it exits 0."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | ansible_environment(ROOT) | {"NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"{' '.join(command)} (exit {done.returncode})\n{done.stdout}\n{done.stderr}", pytrace=False)


def shell_scripts() -> tuple[str, ...]:
    """Every file that says it is a shell script."""
    return tuple(name for name in tracked_files(ROOT) if _first_line(ROOT / name) in SHELLS)


def _first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.readline(80).rstrip()


@pytest.mark.lint
@pytest.mark.parametrize("name", LINTERS)
def test_linter_finds_nothing(name: str) -> None:
    run(LINTERS[name])


@pytest.mark.lint
def test_ansible_lint_finds_nothing(request: pytest.FixtureRequest) -> None:
    digests = Digests(ROOT, records_folder())
    now = lintables(digests)
    digests.save()
    places = ["roles", "playbooks", "molecule"]
    if leaves_out(request.config):
        places = changed(records_folder(), now)
    if places:
        run(("ansible-lint", *places))
    remember(records_folder(), now)


@pytest.mark.lint
def test_shellcheck_finds_nothing() -> None:
    scripts = shell_scripts()
    assert ".ci/run" in scripts
    run(("shellcheck", *scripts))
