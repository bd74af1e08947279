"""A running container in which parts of a role are run by Ansible, as a playbook would."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from provisioner.hosts.incus import IncusProvider
from tests.ansible_environment import ansible_environment
from tests.processes import completed

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 1800


@dataclass
class RoleBox:
    """The container, and a folder for what Ansible reads."""

    provider: IncusProvider
    name: str
    folder: Path

    def play(self, play: dict[str, Any], variables: dict[str, Any]) -> str:
        """What a run of the play says; its last line is its exit code."""
        reached = {"ansible_python_interpreter": "/usr/bin/python3", **self.provider.connection_variables(self.name)}
        inventory, playbook = self.folder / "hosts.yml", self.folder / "play.yml"
        inventory.write_text(yaml.safe_dump({"all": {"hosts": {self.name: reached}}}))
        playbook.write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, **play}]))
        program = Path(sys.executable).parent / "ansible-playbook"
        done = completed(
            [program, "-i", inventory, playbook, "--extra-vars", json.dumps(variables)],
            env=os.environ | ansible_environment(ROOT),
            timeout_s=TIMEOUT_S,
        )
        return f"{done.stdout}{done.stderr}\nrc={done.returncode}"

    def run(self, script: str) -> str:
        """What the shell prints in the container."""
        done = self.provider.execute(self.name, ["bash", "-c", script], timeout_s=TIMEOUT_S)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.decode()
