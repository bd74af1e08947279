"""A role builds its program in the machine itself in a play of one's own, and never in a container of a lab."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.catalog import load_catalog
from provisioner.lab import ModelFile, desired_fleet, problems, resolve
from provisioner.values import paths
from tests.lab_files import spec_of
from tests.plays import run_tasks

ROOT = Path(__file__).resolve().parents[2]
INCLUDED = {"name": "base", "tasks_from": "build_here"}
LAB: dict[str, Any] = {
    "name": "lab",
    "models": {"tiny": {"source": "builtin:tiny"}},
    "containers": {"engine": {"services": {"llama_cpp": {"model": "tiny"}}}, "voice": {"services": {"kokoro": {}}}},
}


def _tasks(role: str) -> list[dict[str, Any]]:
    path = Path(paths.roles(), role, "tasks/preflight.yml")
    tasks = yaml.safe_load(path.read_text("utf-8")) if path.is_file() else []
    return [task for task in tasks if task.get("ansible.builtin.include_role") == INCLUDED]


BUILDING = {role.name: task for role in sorted(paths.roles().iterdir()) for task in _tasks(role.name)}


def test_some_roles_do_that() -> None:
    assert {"kokoro", "litellm", "llama_cpp"} <= set(BUILDING)


@pytest.mark.parametrize("role", BUILDING)
def test_it_is_built_where_the_role_looks_for_it_and_where_nobody_said_another_place(role: str) -> None:
    page = load_catalog().services[role]
    assert page.artifact is not None
    task = BUILDING[role]
    assert task["when"] == f"{role}_artifact_path == '{page.artifact.path}' and not ansible_check_mode"
    assert task["vars"]["base_build_role"] == role
    assert task["vars"]["base_build_path"] == page.artifact.path
    defaults = yaml.safe_load(Path(paths.roles(), role, "defaults/main.yml").read_text("utf-8"))
    assert defaults[f"{role}_artifact_path"] == page.artifact.path


def test_a_lab_says_another_place_even_where_nothing_came_to_be_mounted() -> None:
    resolved = resolve(spec_of(LAB), load_catalog())
    assert problems(resolved) == []
    fleet = desired_fleet(resolved, {"tiny": ModelFile("/models/tiny.gguf", "tiny.gguf", "a" * 64)}, {})
    services = [service for instance in fleet.instances for service in instance.services if service.role in BUILDING]
    assert len(services) == len(LAB["containers"])
    for service in services:
        place = str(service.variables[f"{service.role}_artifact_path"])
        assert place != BUILDING[service.role]["vars"]["base_build_path"]


OTHERS: dict[str, tuple[Callable[[Path], object], list[str], bool]] = {
    "nothing": (lambda _: None, ["cpu"], False),
    "an option": (lambda _: None, ["cuda"], True),
    "a step of the build": (lambda role: (role / "tasks/build_git.yml").write_text("other"), ["cpu"], True),
    "a package": (lambda role: (role / "files/requirements.txt").write_text("other==2"), ["cpu"], True),
    "a variable of the build": (lambda role: (role / "vars/build.yml").write_text("other: 2"), ["cpu"], True),
    "what is no part of it": (lambda role: (role / "tasks/main.yml").write_text("other"), ["cpu"], False),
}
"""By what is another one: who changes it, the options that the role has then, and whether that is another build."""


@pytest.mark.parametrize("what", OTHERS)
def test_what_was_written_down_is_known_again_and_anything_else_is_not(tmp_path: Path, what: str) -> None:
    """The very content that the role writes, held against its own variables by a real run."""
    change, options, is_else = OTHERS[what]
    roles = tmp_path / "roles"
    files = ("tasks/main.yml", "tasks/build.yml", "tasks/build_git.yml", "vars/build.yml", "files/requirements.txt")
    for name in files:
        (roles / "engine" / name).parent.mkdir(parents=True, exist_ok=True)
        (roles / "engine" / name).write_text(f"{name}: 1\n", encoding="utf-8")
    tasks = yaml.safe_load(Path(paths.roles(), "base/tasks/build_here.yml").read_text("utf-8"))
    (written,) = [task["ansible.builtin.copy"] for task in tasks if "ansible.builtin.copy" in task]
    known = {"base_build_role": "engine", "base_build_path": str(tmp_path), "role_path": str(roles / "base")}
    include = {"include_vars": {"file": str(Path(paths.roles(), "base/vars/main.yml"))}}
    copy = {"content": written["content"], "dest": "{{ __base_made_of }}", "mode": "0644"}
    run_tasks(ROOT, tmp_path, [include, {"copy": copy, "vars": {**known, "base_build_options": ["cpu"]}}])
    change(roles / "engine")
    looked_at = {"paths": [str(tmp_path / "MANIFEST.sha256"), str(tmp_path / "MADE_OF")]}
    judged = {
        "assert": {"that": f"__base_is_of_something_else == {is_else}"},
        "vars": {**known, "base_build_options": options},
    }
    run_tasks(ROOT, tmp_path, [include, {"provision_paths": looked_at, "register": "__base_built"}, judged])
