"""What a proof's judging tasks say came, as Ansible judges answers that are as they should be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from provisioner.reconcile.configure import PROOF
from provisioner.values import paths
from provisioner.values.plain_data import yaml_value
from tests.case_files import read_cases
from tests.plays import rescued, run_cases
from tests.unit.ansible.test_tables_of_checks import USUAL

ROOT = Path(__file__).resolve().parents[3]
TABLES = read_cases("ansible/what_came")
KNOWN = {role: {**USUAL.get(role, {}), **registered} for role, registered in TABLES["known"].items()}
"""For each role options, and what its tasks register where all is as it should be."""
CAME: dict[str, list[str]] = TABLES["came"]
"""What each file of tasks says at least."""
POOR: dict[str, dict[str, Any]] = TABLES["poor"]
"""Registered results that are not as they should be: the words of success must not hide why."""


def judging(tasks: Any) -> Iterator[dict[str, Any]]:
    """The asserts among these tasks, and in their blocks, that are steps of a proof."""
    for task in tasks or []:
        if "ansible.builtin.assert" in task and PROOF.match(task.get("name", "")):
            yield task
        for part in ("block", "rescue", "always"):
            yield from judging(task.get(part))


def without_words(task: Mapping[str, Any]) -> bool:
    """Whether it does not say what came: nothing, or what it would say whatever came."""
    return "{{" not in str(task["ansible.builtin.assert"].get("success_msg", ""))


def read(file: str) -> list[dict[str, Any]]:
    """Return the judging tasks of a role's file, ``role/file``."""
    role, name = file.split("/")
    page = paths.roles() / role / "tasks" / f"{name}.yml"
    return list(judging(yaml_value(page.read_text(encoding="utf-8"))))


def of_all_roles() -> dict[str, list[dict[str, Any]]]:
    """Return the judging tasks of every role, by role and file."""
    files = [f"{page.parents[1].name}/{page.stem}" for page in sorted(paths.roles().glob("*/tasks/*.yml"))]
    return {file: tasks for file in files if (tasks := read(file))}


def test_every_judging_task_of_a_proof_says_what_came() -> None:
    silent = []
    for file, tasks in of_all_roles().items():
        silent += [f"{file}: {task['name']}" for task in tasks if without_words(task)]
    assert silent == []
    assert of_all_roles().keys() == CAME.keys(), "each of them is run by this test"


@pytest.mark.parametrize("words", [{}, {"success_msg": "All is well."}, {"success_msg": ""}])
def test_one_that_says_nothing_of_what_came_is_found(words: dict[str, str]) -> None:
    task = {"name": "verify | Check it", "ansible.builtin.assert": {"that": "true", **words}}
    assert [without_words(found) for found in judging([{"block": [task]}])] == [True]


def facts(folder: Path, file: str, tasks: list[dict[str, Any]], differs: Mapping[str, Any]) -> dict[str, Any]:
    """Run tasks of a role where all is as it should be, but for what differs; the facts that they set."""
    role, name = file.split("/")
    own = {"role_name": role, "role_path": str(paths.roles() / role)}
    given = own | KNOWN[role] | (TABLES["several"] if name == "verify_models" else {}) | dict(differs)
    return run_cases(ROOT, folder, role, {"case": given}, tasks)["case"]


def unconditional(file: str) -> list[dict[str, Any]]:
    """Return the judging tasks of a role's file, which judge whatever else is the case."""
    return [{key: value for key, value in task.items() if key != "when"} for task in read(file)]


def told(folder: Path, file: str) -> list[str]:
    """Return what the judging tasks of a file said, task by task."""
    said = "came.results | default([came]) | map(attribute='msg') | join('\n')"
    tasks: list[dict[str, Any]] = []
    for task in unconditional(file):
        note = {"told": f"{{{{ told | default([]) + [{said}] }}}}"}
        tasks += [{**task, "register": "came"}, {"set_fact": note}]
    answers: list[str] = facts(folder, file, tasks, {})["told"]
    return answers


@pytest.mark.parametrize("file", CAME)
def test_the_words_of_the_answers_are_told(tmp_path: Path, file: str) -> None:
    said = told(tmp_path, file)
    assert len(said) == len(read(file))
    assert all(words.strip() for words in said), said
    together = "\n".join(said)
    assert [words for words in CAME[file] if words not in together] == [], together


@pytest.mark.parametrize("case", POOR)
def test_what_is_not_as_it_should_be_is_told_as_before(tmp_path: Path, case: str) -> None:
    file = POOR[case]["file"]
    said = facts(tmp_path, file, [rescued(*unconditional(file))], POOR[case]["differs"]).get("said", "")
    assert said.startswith("Unable"), said


@pytest.mark.parametrize("case", TABLES["bare"], ids=lambda case: case["file"])
def test_where_nothing_came_it_holds_all_the_same(tmp_path: Path, case: dict[str, Any]) -> None:
    tasks: list[dict[str, Any]] = [{"set_fact": {"ended": []}}]
    for task in unconditional(case["file"]):
        ended = {"set_fact": {"ended": "{{ ended + [ansible_failed_result.msg | string] }}"}}
        tasks.append({"block": [task], "rescue": [ended]})
    words = facts(tmp_path, case["file"], tasks, case["differs"])["ended"]
    assert [said for said in words if "success_msg" in said] == []
