"""Tasks and roles that Ansible runs on this machine, and what it says of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.ansible_environment import ansible_environment

SAID = "ansible_failed_result.results | default([ansible_failed_result]) | map(attribute='msg', default='') | join(' ')"
"""An expression for what failed said, of a loop what its items said."""


def run_tasks(root: Path, folder: Path, tasks: Iterable[Mapping[str, Any]]) -> str:
    """Run tasks on this machine, which know ``folder``; what Ansible printed."""
    here = {"hosts": "localhost", "connection": "local", "vars": {"ansible_python_interpreter": sys.executable}}
    play = [{**here, "gather_facts": False, "tasks": list(tasks)}]
    (folder / "play.yml").write_text(yaml.safe_dump(play, sort_keys=False), encoding="utf-8")
    done = subprocess.run(
        ["ansible-playbook", "play.yml", "-i", "localhost,", "-e", f"folder={folder}"],
        cwd=folder,
        env={**os.environ, **ansible_environment(root)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    return done.stdout


def refusals(
    root: Path, folder: Path, role: str, tasks_from: str, cases: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """What a role's tasks say to each case's options, by the case's name; no entry where they take them."""
    tasks: list[dict[str, Any]] = [{"set_fact": {"told": {}}}]
    for name, options in cases.items():
        include = {"name": role, "tasks_from": tasks_from}
        variables = {f"{role}_{key}": value for key, value in options.items()}
        said = {"told": f"{{{{ told | combine({{case: {SAID}}}) }}}}"}
        tasks.append(
            {
                "block": [{"include_role": include, "vars": variables}],
                "rescue": [{"set_fact": said, "vars": {"case": name}}],
            }
        )
    tasks.append({"copy": {"content": "{{ told | to_json }}", "dest": "{{ folder }}/told.json", "mode": "0600"}})
    run_tasks(root, folder, tasks)
    told: dict[str, str] = json.loads((folder / "told.json").read_text(encoding="utf-8"))
    return told
