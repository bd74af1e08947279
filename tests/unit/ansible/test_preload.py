"""What Ansible has loaded before it forks a worker for each task."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from provisioner.ansible.callback.provision_preload import MODULES
from provisioner.reconcile.runner import ansible_environment
from provisioner.values import paths

CONNECTIONS = sorted((paths.plugins() / "connection").glob("provision_*.py"))
SAY_LOADED = """
from ansible.plugins.action import ActionBase
import sys

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        return {"changed": False, "missing": [one for one in self._task.args["wanted"] if one not in sys.modules]}
"""


@pytest.mark.parametrize("plugin", CONNECTIONS, ids=lambda plugin: plugin.stem)
def test_all_that_a_connection_loads_of_ours_is_loaded_before(plugin: Path) -> None:
    tree = ast.parse(plugin.read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    loaded = set()
    for node in ast.walk(tree):
        if (
            not isinstance(node, ast.ImportFrom)
            or id(node) in for_types
            or not str(node.module).startswith("provisioner")
        ):
            continue
        names = {f"{node.module}.{alias.name}" for alias in node.names}
        loaded |= names & set(MODULES) or {str(node.module)}
    assert loaded
    assert loaded - set(MODULES) == set()


def test_a_worker_finds_them_loaded(tmp_path: Path) -> None:
    actions = tmp_path / "actions"
    actions.mkdir()
    (actions / "say_loaded.py").write_text(SAY_LOADED, encoding="utf-8")
    (tmp_path / "ansible.cfg").touch()
    tasks = [
        {"say_loaded": {"wanted": list(MODULES)}, "register": "said"},
        {"ansible.builtin.assert": {"that": ["said.missing == []"]}},
    ]
    play = [{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play), encoding="utf-8")
    environment = ansible_environment() | {
        "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"),
        "ANSIBLE_ACTION_PLUGINS": str(actions),
    }
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", tmp_path / "play.yml"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
