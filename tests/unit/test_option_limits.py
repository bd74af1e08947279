"""Limits of a role's page: a lab's file and the role's own variables are held against them, whatever the role."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.catalog import load_catalog
from provisioner.lab import problems, resolve
from provisioner.labfile.loader import load
from provisioner.values import paths
from provisioner.values.errors import InputError
from tests.ansible_environment import ansible_environment
from tests.case_files import read_cases
from tests.plays import run_tasks
from tests.processes import completed

CASES = read_cases("option_limits")

ROOT = Path(__file__).resolve().parents[2]
TASK = "preflight | Hold the options against the limits of the role's page"
ROLES = sorted(
    page.parents[1].name for page in paths.roles().glob("*/meta/service.yml") if "limits:" in page.read_text()
)
SERVICE: str = CASES["service"]
OPTIONS: str = CASES["options"]


@pytest.fixture
def roles(tmp_path: Path) -> Path:
    """A folder of roles with one that no module knows."""
    meta = tmp_path / "roles/whisper/meta"
    meta.mkdir(parents=True)
    (meta / "service.yml").write_text(SERVICE)
    (meta / "argument_specs.yml").write_text(OPTIONS)
    (meta / "managed.yml").write_text("paths: []\n")
    return tmp_path / "roles"


def refused(roles: Path, options: str) -> list[str]:
    """What is said of a file whose service has these options."""
    file, catalog = roles.parent / "homelab.yml", load_catalog(roles)
    file.write_text(f"name: lab\ncontainers:\n  a:\n    services:\n      whisper:\n        {options}\n")
    try:
        load(file, catalog, run_secret_command=False, rules=lambda spec: problems(resolve(spec, catalog)))
    except InputError as error:
        return [line.removeprefix(f"{file}:") for line in error.details.splitlines()]
    return []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("context: -5", "6:9: containers.a.services.whisper.context: -5 is too small. Write 0 or more."),
        ("beam: 9", "6:9: containers.a.services.whisper.beam: 9 is too large. Write 8 or less."),
        ("speed: 0.25", "6:9: containers.a.services.whisper.speed: 0.25 is too small. Write 0.5 or more."),
        ("languages: [de, DE]", '6:25: containers.a.services.whisper.languages[1]: "DE" must be two small letters'),
        ('languages: ["de\\n"]', '6:21: containers.a.services.whisper.languages[0]: "de\n" must be two small letters'),
        ("weights: [0.5, 1.5]", "6:24: containers.a.services.whisper.weights[1]: 1.5 is too large. Write 1 or less."),
    ],
)
def test_what_is_beyond_a_limit_of_the_page_is_refused_with_its_line(roles: Path, options: str, said: str) -> None:
    assert " ".join(refused(roles, options)) == said.replace("\n", " ")


@pytest.mark.parametrize("options", ["context: 0", "beam: 8", "speed: 0.5", "languages: [de, en]", "weights: [1, -3]"])
def test_what_is_within_the_limits_is_taken(roles: Path, options: str) -> None:
    assert refused(roles, options) == []


def preflight_task(role: str) -> dict[str, Any]:
    tasks = yaml.safe_load((paths.roles() / role / "tasks/preflight.yml").read_text(encoding="utf-8"))
    (task,) = (task for task in tasks if task["name"] == TASK)
    return dict(task)


def test_every_role_with_limits_holds_its_options_against_them_in_the_same_way() -> None:
    assert {"llama_cpp", "litellm", "kokoro", "tabbyapi", "desktop", "container", "torch_stack"} <= set(ROLES)
    assert [role for role in ROLES if preflight_task(role) != preflight_task("llama_cpp")] == []


BEYOND: dict[str, tuple[dict[str, Any], str]] = CASES["beyond"]
"""For each role with limits options of which the last one is beyond its own, and what the role says."""


def test_each_role_itself_refuses_what_is_beyond_its_limits(tmp_path: Path) -> None:
    assert sorted(BEYOND) == ROLES
    tasks: list[dict[str, Any]] = []
    for role, (options, _) in BEYOND.items():
        include = {"name": role, "tasks_from": "preflight"}
        variables = {f"{role}_{name}": value for name, value in options.items()}
        tasks.append(
            {
                "block": [{"ansible.builtin.include_role": include, "vars": variables}],
                "rescue": [{"set_fact": {f"said_by_{role}": "{{ ansible_failed_result.msg }}"}}],
            }
        )
    facts = run_tasks(ROOT, tmp_path, tasks)
    for role, (_, words) in BEYOND.items():
        said = facts[f"said_by_{role}"]
        assert len(said.splitlines()) == 1
        assert said.startswith(f"Unable to set up {role}: {words}")


def role_said(folder: Path, variables: Mapping[str, Any]) -> tuple[int, str]:
    """The exit code and the output of the roles' task on the scratch role with these variables."""
    tasks = folder / "roles/whisper/tasks"
    tasks.mkdir(exist_ok=True)
    (tasks / "main.yml").write_text(yaml.safe_dump([preflight_task("llama_cpp")]))
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "roles": ["whisper"]}
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    (folder / "variables.json").write_text(json.dumps(variables))
    done = completed(
        ["ansible-playbook", "play.yml", "-i", "localhost,", "-e", "@variables.json"],
        cwd=folder,
        env={**os.environ, **ansible_environment(ROOT), "ANSIBLE_ROLES_PATH": str(folder / "roles")},
        timeout_s=120,
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_a_role_takes_what_is_within_its_limits_and_what_is_not_said(roles: Path) -> None:
    variables = {"whisper_context": 0, "whisper_beam": 8, "whisper_languages": ["de"], "whisper_weights": [1, 0.5]}
    code, said = role_said(roles.parent, variables)
    assert (code, "failed=0" in said) == (0, True), said


def test_a_role_refuses_what_is_beyond_its_limits_and_runs_no_template_of_a_user(roles: Path) -> None:
    mark = roles.parent / "mark"
    variables = {
        "whisper_context": -5,
        "whisper_beam": 9,
        "whisper_languages": ["de\n", {"__ansible_unsafe": f"{{{{ lookup('pipe', 'touch {mark}') }}}}"}],
        "whisper_weights": [1.5],
    }
    code, said = role_said(roles.parent, variables)
    assert code != 0
    assert "Unable to set up whisper: `context` (-5) must be 0 or more." in said
    assert "Unable to set up whisper: `beam` (9) must be 1 or more and 8 or less." in said
    assert "must be two small letters." in said
    assert "Unable to set up whisper: `weights` (1.5) must be 1 or less." in said
    assert not mark.exists()
