"""What a role's build says by ``include_vars`` holds for the rest of a play, over what tasks and vars/main.yml say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.values import paths

BUILDS = sorted(paths.roles().glob("*/vars/build*.yml"))


def of_tasks(node: Any) -> Iterator[str]:
    """Each name that a task or a block says in its ``vars``, or registers."""
    for one in node if isinstance(node, list) else []:
        yield from one.get("vars") or {}
        yield from [one["register"]] if "register" in one else []
        for part in ("block", "rescue", "always"):
            yield from of_tasks(one.get(part))


def elsewhere(role: Path) -> set[str]:
    """The names that a role says beside its build."""
    beside = [path for path in (role / "tasks").glob("*.yml") if not path.name.startswith("build")]
    names = {name for path in beside for name in of_tasks(yaml.safe_load(path.read_text("utf-8")))}
    for path in (*(role / "vars").glob("main.yml"), *(role / "defaults").glob("main.yml")):
        names.update(yaml.safe_load(path.read_text("utf-8")) or {})
    return names


@pytest.mark.parametrize("build", BUILDS, ids=lambda path: f"{path.parents[1].name}/{path.name}")
def test_no_name_of_a_build_is_another_thing_elsewhere_in_its_role(build: Path) -> None:
    said = set(yaml.safe_load(build.read_text("utf-8")))
    assert said & elsewhere(build.parents[1]) == set()


def test_a_name_that_is_used_twice_is_found(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/preflight.yml").write_text("- block:\n    - {vars: {__one: 1}, register: __two}\n")
    (tmp_path / "tasks/build.yml").write_text("- {vars: {__three: 1}}\n")
    assert elsewhere(tmp_path) == {"__one", "__two"}
