"""What a task registers has a name of its own: it would hide the role's variable of that name from all that follows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROLES = Path(__file__).resolve().parents[2] / "roles"
HIDING = {"command": "true", "name": "Look", "register": "__a_role_paths"}


def registered(tasks: Any) -> Iterator[str]:
    """The names that these tasks and those in their blocks register."""
    for task in tasks or []:
        if "register" in task:
            yield task["register"]
        for part in ("block", "rescue", "always"):
            yield from registered(task.get(part))


def hidden_in(role: Path) -> list[str]:
    """The role's variables that one of its tasks hides."""
    pages = [*role.glob("vars/*.yml"), *role.glob("defaults/*.yml")]
    own = {name for page in pages for name in yaml.safe_load(page.read_text(encoding="utf-8")) or {}}
    tasks = [yaml.safe_load(page.read_text(encoding="utf-8")) for page in role.rglob("tasks/*.yml")]
    return sorted(own.intersection(name for page in tasks for name in registered(page)))


@pytest.mark.parametrize("role", sorted(ROLES.iterdir()), ids=lambda role: role.name)
def test_no_task_hides_a_variable_of_its_role(role: Path) -> None:
    assert hidden_in(role) == []


@pytest.mark.parametrize("tasks", [[HIDING], [{"name": "Try", "block": [], "always": [HIDING]}]], ids=["task", "block"])
def test_one_that_does_is_named(tmp_path: Path, tasks: list[dict[str, Any]]) -> None:
    (tmp_path / "vars").mkdir()
    (tmp_path / "vars/main.yml").write_text("__a_role_paths: []\n__a_role_port: 1\n", encoding="utf-8")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/main.yml").write_text(yaml.safe_dump(tasks), encoding="utf-8")
    assert hidden_in(tmp_path) == ["__a_role_paths"]
