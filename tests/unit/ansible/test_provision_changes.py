"""What callback `provision_changes` writes down of a run of Ansible: names of what was changed, nothing else."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.ansible.callback.provision_changes import changed_things, things
from tests.ansible_environment import ansible_environment
from tests.case_files import read_cases
from tests.processes import completed

CASES = read_cases("ansible/provision_changes")

ROOT = Path(__file__).resolve().parents[3]
CANARY = "canary-of-no-log"
MADE = "{{ playbook_dir }}/made"

SAYS_CHANGED = """
import json, sys
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({SPEC})
module.exit_json(changed=True)
"""
"""A module that changes nothing and says that it did, for those that need root or systemd."""
STANDS_IN_FOR = {
    "apt": {"name": {"type": "list", "elements": "str"}, "update_cache": {"type": "bool"}},
    "systemd_service": {"name": {}, "state": {}},
    "user": {"name": {}, "password": {"no_log": True}},
    "stranger": {},
}

TASKS: list[dict[str, Any]] = CASES["tasks"]
HANDLERS = [{"name": "Restart it", "systemd_service": {"name": "engine@1", "state": "restarted"}}]
AFTER_ROLES: list[dict[str, Any]] = [
    {"name": "of no role", "copy": {"content": "x", "dest": f"{MADE}/post"}},
    {"name": "hidden of no role", "copy": {"content": CANARY, "dest": f"{MADE}/us5"}, "no_log": True},
]
PLAY = {"hosts": "all", "gather_facts": False, "roles": ["gateway"]}
EXPECTED: list[tuple[str, dict[str, Any]]] = CASES["expected"]
PROGRAM = (sys.executable, "-m", "tests.ansible_here")
"""Ansible with its own action plugins, modules and callbacks, without a Python for each of sixty modules."""
KEYS = {"playbook", "host", "role", "task", "module", *things()}


def play(
    program: Sequence[str],
    folder: Path,
    tasks: list[dict[str, Any]],
    after: list[dict[str, Any]],
    *arguments: str,
    file: str,
) -> str:
    """Run the role with ``tasks``, and others ``after`` it, on this machine; what Ansible printed."""
    role = folder / "roles/gateway"
    pages = {"tasks/main.yml": tasks, "handlers/main.yml": HANDLERS}
    for page, content in pages.items():
        (role / page).parent.mkdir(parents=True, exist_ok=True)
        (role / page).write_text(yaml.safe_dump(content))
    (role / "templates").mkdir(exist_ok=True)
    (role / "templates/word.j2").write_text("plain-value")
    (folder / "library").mkdir(exist_ok=True)
    for name, spec in STANDS_IN_FOR.items():
        (folder / f"library/{name}.py").write_text(SAYS_CHANGED.replace("{SPEC}", repr(spec)))
    (folder / "library/provision_unit.py").write_text(SAYS_CHANGED.replace("{SPEC}", "{'name': {}}"))
    (folder / "converge.yml").write_text(yaml.safe_dump([PLAY | {"post_tasks": after}]))
    host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"box": None}, "vars": host}}))
    done = completed(
        [*program, "--inventory", str(folder / "hosts.yml"), str(folder / "converge.yml"), *arguments],
        cwd=ROOT,
        env=os.environ
        | ansible_environment(ROOT)
        | {
            "ANSIBLE_ROLES_PATH": str(folder / "roles"),
            "ANSIBLE_LIBRARY": str(folder / "library"),
            "ANSIBLE_LOCAL_TEMP": str(folder / "temporary"),
            "ANSIBLE_CALLBACKS_ENABLED": "provision_changes",
            "PROVISION_CHANGES_FILE": file,
        },
        timeout_s=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the role was run once, with the callback."""
    folder = tmp_path_factory.mktemp("changes").resolve()
    printed = play(PROGRAM, folder, TASKS, AFTER_ROLES, file=str(folder / "changes.jsonl"))
    assert "WARNING" not in printed
    assert "DEPRECATION" not in printed
    return folder


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "changes.jsonl").read_text().splitlines()]


def test_each_change_is_named(ran: Path) -> None:
    found = [(line["task"], {key: line[key] for key in things() if line[key]}) for line in lines_of(ran)]
    within = [
        (task, named | ({"paths": [str(ran / path) for path in named["paths"]]} if "paths" in named else {}))
        for task, named in EXPECTED
    ]
    assert found == within


def test_a_line_says_where_it_comes_from(ran: Path) -> None:
    lines = {line["task"]: line for line in lines_of(ran)}
    assert {frozenset(line) for line in lines.values()} == {frozenset(KEYS)}
    where = {key: lines["copy"][key] for key in ("playbook", "host", "role", "module")}
    assert where == {"playbook": "converge.yml", "host": "box", "role": "gateway", "module": "copy"}
    assert lines["elsewhere"]["host"] == "other"
    assert lines["Restart it"]["role"] == "gateway"
    assert lines["of no role"]["role"] == ""


def test_no_value_is_written(ran: Path) -> None:
    text = (ran / "changes.jsonl").read_text()
    assert CANARY in (ran / "made/hidden").read_text()
    assert CANARY not in text
    assert "plain-value" not in text
    assert (ran / "changes.jsonl").stat().st_mode & 0o777 == 0o600


def test_ansible_playbook_itself_has_the_same_written(ran: Path, tmp_path: Path) -> None:
    folder = tmp_path.resolve()
    play(["ansible-playbook"], folder, TASKS[:1], [], file=str(folder / "changes.jsonl"))
    (line,) = lines_of(folder)
    assert line == {**lines_of(ran)[0], "paths": [str(folder / "made")]}


def test_nothing_is_written_where_nothing_can_change(tmp_path: Path) -> None:
    file = tmp_path / "changes.jsonl"
    printed = play(PROGRAM, tmp_path, TASKS[:1], [], "--check", file=str(file))
    assert "changed=1 " in printed
    assert file.read_text() == ""


def test_without_a_file_it_does_nothing(tmp_path: Path) -> None:
    assert "changed=1 " in play(PROGRAM, tmp_path, TASKS[:1], [], file="")
    assert not (tmp_path / "changes.jsonl").exists()


@pytest.mark.parametrize(
    ("module", "arguments", "named"), CASES["what needs more than this machine is taken from the arguments"]
)
def test_what_needs_more_than_this_machine_is_taken_from_the_arguments(
    module: str, arguments: dict[str, Any], named: dict[str, Any]
) -> None:
    assert changed_things(module, {"changed": True, "invocation": {"module_args": arguments}}) == things(**named)
