"""How Ansible and its tools find our roles and plugins in a checkout."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def ansible_environment(root: Path) -> dict[str, str]:
    """What is added to the environment of ansible-playbook, ansible-lint and Molecule; our venv's tools come first."""
    plugins = root / "src/provisioner/ansible"
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ANSIBLE_ROLES_PATH": str(root / "roles"),
        "ANSIBLE_LIBRARY": str(plugins / "modules"),
        "ANSIBLE_CONNECTION_PLUGINS": str(plugins / "connection"),
        "ANSIBLE_LOOKUP_PLUGINS": str(plugins / "lookup"),
        "ANSIBLE_CALLBACK_PLUGINS": str(plugins / "callback"),
        "ANSIBLE_PIPELINING": "1",
    }
