"""Verbs that touch nothing answer at once: at most half of what Ansible needs to parse our site play, side by side."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ansible_environment import ansible_environment

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
FILE = ROOT / "examples/quickstart.yml"
ROUNDS = 5
SHARE = 0.5
HEAVY = ("ansible", "ansible_runner", "pylxd", "proxmoxer", "requests")
QUICK = {
    "--version": ("--version",),
    "--help": ("--help",),
    "validate": ("validate", str(FILE)),
    "schema": ("schema",),
}
SYNTAX_CHECK = ("ansible-playbook", "--syntax-check", "-i", "localhost,", "playbooks/site.yml")


def run(command: tuple[str, ...], folder: Path) -> str:
    """What the command says on stderr; it must succeed."""
    secrets = {"PROVISION_SECRET_LLAMA_KEY": "x" * 32, "PROVISION_SECRET_LITELLM_KEY": "sk-" + "x" * 32}
    environment = os.environ | ansible_environment(ROOT) | secrets
    # Ansible comes compiled, as our package does in a wheel; an editable one compiles itself at its first import.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stderr


def cpu_seconds(command: tuple[str, ...], folder: Path) -> float:
    """User and system time of the command and its children; it must succeed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(command, folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_quick_verbs_cost_at_most_half_of_a_syntax_check(record_property: Callable[[str, object], None]) -> None:
    commands = {name: (str(BIN / "provision"), *arguments) for name, arguments in QUICK.items()}
    everything = {"syntax-check": SYNTAX_CHECK, **commands}
    taken: dict[str, list[float]] = {name: [] for name in everything}
    for _ in range(ROUNDS):
        for name, command in everything.items():
            taken[name].append(cpu_seconds(command, ROOT))
    medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
    for name, seconds in medians.items():
        record_property(f"cpu_s {name}", round(seconds, 3))
    limit = SHARE * medians.pop("syntax-check")
    assert {name: seconds for name, seconds in medians.items() if seconds > limit} == {}, f"limit {limit:.3f} s"


@pytest.mark.parametrize("arguments", QUICK.values(), ids=QUICK)
def test_quick_verbs_import_nothing_heavy(arguments: tuple[str, ...]) -> None:
    program = (
        "import sys\n"
        "from provisioner.cli import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as stop:\n"
        "    assert not stop.code, stop.code\n"
        "print(*sorted(name for name in sys.modules if '.' not in name), file=sys.stderr)\n"
    )
    said = run((sys.executable, "-c", program, *arguments), ROOT)
    imported = set(said.splitlines()[-1].split())
    assert "provisioner" in imported
    assert imported.isdisjoint(HEAVY)
