"""Verbs that touch nothing, beside Ansible's own reading of our site play (CPU seconds)."""

from __future__ import annotations

import sys

from benchmarks.measuring import BIN, ROOT, Row, cost

RUNS = 5
SECRETS = {"PROVISION_SECRET_LLAMA_KEY": "x" * 32, "PROVISION_SECRET_LITELLM_KEY": "sk-" + "x" * 32}
ANSIBLE = {
    "ANSIBLE_ROLES_PATH": str(ROOT / "roles"),
    "ANSIBLE_LIBRARY": str(ROOT / "src/provisioner/ansible/modules"),
}
SYNTAX_CHECK = "ansible-playbook --syntax-check"
CLICK = "python -c 'import click'"
COMMANDS = {
    CLICK: (sys.executable, "-c", "import click"),
    SYNTAX_CHECK: (
        *(str(BIN / "ansible-playbook"), "--syntax-check", "-i", "localhost,"),
        "playbooks/site.yml",
    ),
    "provision --version": (str(BIN / "provision"), "--version"),
    "provision --help": (str(BIN / "provision"), "--help"),
    "provision validate": (str(BIN / "provision"), "validate", "examples/quickstart.yml"),
    "provision schema": (str(BIN / "provision"), "schema"),
}


def rows() -> list[Row]:
    """A row for each command; the commands take turns, so that load falls on all alike."""
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(RUNS):
        for name, command in COMMANDS.items():
            taken[name].append(cost(command, SECRETS | ANSIBLE).cpu_s)
    pairs = zip(taken["provision validate"], taken[SYNTAX_CHECK], strict=True)
    ratio = Row(f"provision validate / {SYNTAX_CHECK}", [ours / theirs for ours, theirs in pairs], "x")
    more = [ours - theirs for ours, theirs in zip(taken["provision --help"], taken[CLICK], strict=True)]
    return [
        *(Row(name, values, "CPU s") for name, values in taken.items()),
        ratio,
        Row(f"provision --help - {CLICK}", more, "CPU s"),
    ]
