"""The gate that every scenario has fails where a role changes what it does not declare, and names it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from provisioner.values import paths
from tests.ansible_environment import ansible_environment
from tests.molecule.changes import changes_of, declared_by, scenario_variables, undeclared

ROOT = Path(__file__).resolve().parents[2]
TASKS: list[dict[str, Any]] = [
    {"name": "Make the folder", "file": {"path": "{{ gateway_folder }}", "state": "directory", "mode": "0755"}},
    {"name": "Write the file", "copy": {"content": "{{ gateway_key }}", "dest": "{{ gateway_folder }}/key"}}
    | {"no_log": True},
    {"name": "Look at the file", "stat": {"path": "{{ gateway_folder }}/key"}},
    {"name": "Do something", "command": {"cmd": "true"}},
]
PAGE = {
    "paths": ["{{ gateway_folder }}/", "{{ gateway_folder }}/key", "{{ '/left/out' if gateway_more else '' }}"],
    "unknown": {"Do something": "it does nothing"},
}
NOTHING: dict[str, Any] = {"paths": [], "packages": [], "units": [], "users": [], "unknown": False}
SPECS = {"gateway_folder": {}, "gateway_more": {}, "gateway_key": {"no_log": True}}


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a scenario that has converged, with its role in ``gateway/``."""
    folder = tmp_path_factory.mktemp("scenario").resolve()
    play = {"hosts": "localhost", "gather_facts": False, "roles": ["gateway"], "vars": {"gateway_key": "canary"}}
    others = [{"name": "Not the role's", "copy": {"content": "", "dest": f"{folder}/other"}}]
    write(folder / "gateway/tasks/main.yml", TASKS)
    write(folder / "gateway/defaults/main.yml", {"gateway_more": False})
    write(folder / "gateway/meta/argument_specs.yml", {"argument_specs": {"main": {"options": SPECS}}})
    write(folder / "converge.yml", [play | {"post_tasks": others}])
    write(folder / "vars.yml", {"gateway_folder": f"{folder}/made"})
    environment = {
        "ANSIBLE_ROLES_PATH": str(folder),
        "ANSIBLE_CALLBACKS_ENABLED": "provision_changes",
        "PROVISION_CHANGES_FILE": str(folder / "changes.jsonl"),
    }
    command = ["ansible-playbook", "--extra-vars", f"@{folder}/vars.yml", str(folder / "converge.yml")]
    command += ["--extra-vars", json.dumps({"ansible_python_interpreter": sys.executable})]
    subprocess.run(command, env=os.environ | ansible_environment(ROOT) | environment, check=True, timeout=120)
    return folder


def write(page: Path, content: Any) -> None:
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(yaml.safe_dump(content))


def complaints(scenario: Path, page: dict[str, Any]) -> list[str]:
    """What the gate says of the run when this were the role's page."""
    write(scenario / "gateway/meta/managed.yml", page)
    declared = declared_by(scenario / "gateway", scenario_variables(scenario))
    return undeclared(changes_of(scenario / "changes.jsonl"), {"gateway": declared})


def test_nothing_is_said_where_all_is_declared(scenario: Path) -> None:
    assert complaints(scenario, PAGE) == []


@pytest.mark.parametrize(
    ("left_out", "path", "task"), [(0, "made", "Make the folder"), (1, "made/key", "Write the file")]
)
def test_a_path_that_is_not_declared_is_named(scenario: Path, left_out: int, path: str, task: str) -> None:
    page = PAGE | {"paths": [one for number, one in enumerate(PAGE["paths"]) if number != left_out]}
    words = f'roles/gateway/meta/managed.yml lacks {scenario}/{path} in `paths`, changed by task "{task}"'
    assert complaints(scenario, page) == [words]


def test_a_path_that_is_taken_up_without_a_new_process_is_declared_as_well(scenario: Path) -> None:
    first, *others = PAGE["paths"]
    assert complaints(scenario, PAGE | {"paths": [first], "reloaded": others}) == []


def test_a_change_that_nobody_can_name_needs_a_reason(scenario: Path) -> None:
    found = complaints(scenario, PAGE | {"unknown": {}})
    assert len(found) == 1
    assert "a reason in `unknown`" in found[0]
    assert "Do something" in found[0]


@pytest.mark.parametrize("kind", ["packages", "units", "users"])
def test_the_other_kinds_are_compared_as_well(scenario: Path, kind: str) -> None:
    write(scenario / "gateway/meta/managed.yml", PAGE)
    declared = {"gateway": declared_by(scenario / "gateway", scenario_variables(scenario))}
    change = {"role": "gateway", "task": "One"} | NOTHING | {kind: ["thing"]}
    assert undeclared([change], declared) == [
        f'roles/gateway/meta/managed.yml lacks thing in `{kind}`, changed by task "One"'
    ]


def test_a_role_that_cannot_be_stamped_declares_nothing(scenario: Path) -> None:
    assert complaints(scenario, {"stampable": "it runs elsewhere"}) == []


def test_what_is_declared_is_never_made_of_a_secret(scenario: Path) -> None:
    with pytest.raises(jinja2.UndefinedError, match="gateway_key"):
        complaints(scenario, {"paths": ["/{{ gateway_key }}"]})


def test_a_run_without_the_callback_is_no_pass(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        changes_of(tmp_path / "changes.jsonl")


@pytest.mark.parametrize("scenario_name", sorted(page.parent.name for page in ROOT.glob("molecule/*/molecule.yml")))
def test_the_variables_of_every_scenario_are_found(scenario_name: str) -> None:
    """A scenario has the name of its role, or one that begins with it."""
    roles = [role for role in paths.roles().iterdir() if f"{scenario_name}_".startswith(f"{role.name}_")]
    role = max(roles, key=lambda one: len(one.name))
    declared_by(role, scenario_variables(ROOT / "molecule" / scenario_name))


def test_a_real_page_that_lacks_a_path_fails(tmp_path: Path) -> None:
    role = tmp_path / "llama_cpp"
    for page in ("meta/managed.yml", "meta/argument_specs.yml", "defaults/main.yml"):
        (role / page).parent.mkdir(parents=True, exist_ok=True)
        (role / page).write_text((paths.roles() / "llama_cpp" / page).read_text())
    path = "/etc/systemd/system/llama-server.service"
    line = {"playbook": "converge.yml", "role": "llama_cpp", "task": "configure | Write the unit file"}
    (tmp_path / "changes.jsonl").write_text(json.dumps(line | NOTHING | {"paths": [path]}) + "\n")
    variables = scenario_variables(ROOT / "molecule/llama_cpp")
    changes = changes_of(tmp_path / "changes.jsonl")
    assert undeclared(changes, {"llama_cpp": declared_by(role, variables)}) == []
    managed = role / "meta/managed.yml"
    managed.write_text(managed.read_text().replace(f"  - {path}\n", ""))
    found = undeclared(changes, {"llama_cpp": declared_by(role, variables)})
    assert len(found) == 1
    assert path in found[0]


def test_a_scenario_begins_by_forgetting_what_a_killed_run_has_created() -> None:
    sequence = yaml.safe_load((ROOT / ".config/molecule/config.yml").read_text())["scenario"]["test_sequence"]
    assert sequence.index("destroy") < sequence.index("create"), "create is skipped where an earlier run says 'created'"
