"""What the tables of checks in roles refuse of what a container answered, as Ansible judges it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.values import paths
from tests.case_files import read_cases
from tests.plays import rescued, run_cases

ROOT = Path(__file__).resolve().parents[3]
TABLES = read_cases("ansible/tables_of_checks")
USUAL: dict[str, dict[str, Any]] = TABLES["usual"]
"""For each role options and what its tasks register where nothing is to be refused."""
REFUSED: dict[str, dict[str, Any]] = TABLES["refused"]
"""The role and its file of tasks, what differs from the usual, and what is said of it."""


def tables(role: str, file: str) -> list[dict[str, Any]]:
    """Return the tasks of a role's file that hold a table of checks."""
    page = paths.roles() / role / "tasks" / f"{file}.yml"
    tasks = yaml.safe_load(page.read_text(encoding="utf-8"))
    return [task for task in tasks if "__checks" in task.get("vars", {})]


FILES = sorted({case["file"] for case in REFUSED.values()})
USUALLY = "usual"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, str]]:
    """Return what a role's file says to each of its cases and to what is usual; no entry where it is taken."""

    @cache
    def of_file(file: str) -> dict[str, str]:
        role, tasks = file.split("/")
        differing = {name: case["differs"] for name, case in REFUSED.items() if case["file"] == file}
        cases = {
            name: {"role_name": role, "role_path": str(paths.roles() / role), **USUAL[role], **differs}
            for name, differs in {USUALLY: {}, **differing}.items()
        }
        facts = run_cases(ROOT, tmp_path_factory.mktemp("play"), role, cases, [rescued(*tables(role, tasks))])
        return {name: found["said"] for name, found in facts.items() if "said" in found}

    return of_file


@pytest.mark.parametrize("file", FILES)
def test_nothing_else_is_refused(told: Callable[[str], dict[str, str]], file: str) -> None:
    assert USUALLY not in told(file)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_served_with_is_refused(told: Callable[[str], dict[str, str]], name: str) -> None:
    assert REFUSED[name]["said"] in told(REFUSED[name]["file"]).get(name, "")


def test_a_server_that_did_not_answer_is_not_called_another_process(told: Callable[[str], dict[str, str]]) -> None:
    assert "Unable to trust port" not in told(REFUSED["no answer"]["file"])["no answer"]
