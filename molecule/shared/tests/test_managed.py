"""Run in every scenario: what its roles declare in ``meta/managed.yml`` is all that they changed, and it is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from testinfra.host import Host

from provisioner.values import paths
from tests.molecule.changes import Declared, changes_of, declared_by, scenario_variables, undeclared

SCENARIO = Path(os.environ["MOLECULE_SCENARIO_DIRECTORY"])


@pytest.fixture(scope="module")
def roles(changes: Path) -> dict[str, Declared]:
    """The pages of the role under test and of every role that changed something."""
    names = {SCENARIO.name} | {change["role"] for change in changes_of(changes)}
    variables = scenario_variables(SCENARIO)
    return {name: declared_by(paths.roles() / name, variables) for name in names}


def test_what_was_changed_is_declared(changes: Path, roles: dict[str, Declared]) -> None:
    found = undeclared(changes_of(changes), roles)
    assert not found, "\n".join(found)


def test_what_is_declared_is_there(host: Host, roles: dict[str, Declared]) -> None:
    managed = [one.managed for one in roles.values() if not one.unstampable]
    commands = [
        *(f"test -e {path}" for one in managed for path in (*one.paths, *one.reloaded)),
        *(f"dpkg --status {package}" for one in managed for package in one.packages),
        *(f"systemctl cat {unit}" for one in managed for unit in one.units),
        *(f"id {user}" for one in managed for user in one.users),
        *(f"test -e {venv}/pyvenv.cfg" for one in managed for venv in one.venvs),
    ]
    assert [command for command in commands if host.run(command).failed] == []
