"""Every linter, over the whole tree, as one test each: what it says is the failure's text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import records
from tests.ansible_environment import ansible_environment
from tests.changed import changed_paths
from tests.checkout import tracked_files
from tests.processes import completed

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 300
WHOLE_TREE_S = 1200
"""A limit for ansible-lint over all roles, playbooks and scenarios, which passes 300 s on a busy machine."""
ANSIBLE_FOLDERS = ("roles", "playbooks", "molecule")
DECIDES = (".ansible-lint", ".yamllint", "src/provisioner/ansible/", "tests/requirements.txt")
"""The beginnings of paths by which all that ansible-lint has found well may be wrong now."""
SHELLS = (b"#!/usr/bin/env bash", b"#!/bin/bash", b"#!/bin/sh")

LINTERS: dict[str, tuple[str, ...]] = {
    "ruff check": ("ruff", "check"),
    "ruff format": ("ruff", "format", "--check", "--diff"),
    "mypy": ("mypy",),
    "imports": ("lint-imports", "--no-cache"),
    "yamllint": ("yamllint", "--strict", "."),
    "generated files": ("python", "-m", "provisioner.generate", "--check"),
}


def run(command: tuple[str, ...], timeout_s: float = TIMEOUT_S) -> None:
    """Fail with the command's whole output unless it exits 0 in time."""
    done = completed(
        command, cwd=ROOT, env=os.environ | ansible_environment(ROOT) | {"NO_COLOR": "1"}, timeout_s=timeout_s
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


def ansible_places(changed: list[str] | None) -> tuple[str, ...]:
    """Return the roles, playbooks and scenarios that ansible-lint looks at: all where it is not known what changed."""
    if changed is None or any(path.startswith(DECIDES) for path in changed):
        return ANSIBLE_FOLDERS
    places = set()
    for path in changed:
        folder, _, rest = path.partition("/")
        place = path if folder == "playbooks" else f"{folder}/{rest.partition('/')[0]}"
        if folder in ANSIBLE_FOLDERS and (ROOT / place).exists():
            places.add(place)
    return tuple(sorted(places))


@pytest.mark.parametrize(
    ("changed", "places"),
    [
        (None, ANSIBLE_FOLDERS),
        ([], ()),
        (["docs/tour.md", "src/provisioner/reconcile/plan.py"], ()),
        (["roles/base/tasks/main.yml", "roles/base/README.md", "roles/gone/tasks/main.yml"], ("roles/base",)),
        (["playbooks/site.yml", "molecule/door/converge.yml"], ("molecule/door", "playbooks/site.yml")),
        (["src/provisioner/ansible/modules/provision_unit.py"], ANSIBLE_FOLDERS),
    ],
)
def test_ansible_lint_looks_at_what_changed(changed: list[str] | None, places: tuple[str, ...]) -> None:
    assert ansible_places(changed) == places


@pytest.mark.lint
def test_ansible_lint_finds_nothing(request: pytest.FixtureRequest) -> None:
    full = records.read_runs(ROOT / records.LAST_FULL).get("tests/lint")
    is_partial = full and not full.failed and not request.config.getoption("--all")
    places = ansible_places(changed_paths(ROOT, full.commit) if full and is_partial else None)
    if places:
        run(("ansible-lint", *places), WHOLE_TREE_S)


@pytest.mark.lint
def test_shellcheck_finds_nothing() -> None:
    scripts = shell_scripts()
    assert ".ci/run" in scripts
    run(("shellcheck", *scripts))
