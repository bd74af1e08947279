"""Verbs that touch nothing answer at once: what they import and read is counted; `make bench` says what it costs."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ansible_environment import ansible_environment
from tests.processes import completed

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "examples/quickstart.yml"
HEAVY = ("ansible", "ansible_runner", "pylxd", "proxmoxer", "requests")
MOST_MODULES = {"--help": (10, 150), "validate": (52, 330)}
"""Of ours, and in all: what is imported is what a quick verb costs; libraries and Python itself differ by version."""
OTHERS = {
    "--version": ("pydantic", "rich", "yaml", "provisioner.catalog", "provisioner.labfile.loader"),
    "--help": (
        *("pydantic", "rich", "yaml", "importlib.metadata", "provisioner.cli.versions", "provisioner.cli.plan"),
        *("provisioner.reconcile", "provisioner.labfile.loader"),
    ),
}
"""What the quickest of them need not import either."""
QUICK = {"--version": ("--version",), "--help": ("--help",), "validate": ("validate", str(FILE)), "schema": ("schema",)}


def run(command: tuple[str, ...], folder: Path) -> str:
    """What the command says on stderr; it must succeed."""
    secrets = {"PROVISION_SECRET_LLAMA_KEY": "x" * 32, "PROVISION_SECRET_LITELLM_KEY": "sk-" + "x" * 32}
    environment = os.environ | ansible_environment(ROOT) | secrets
    # Ansible comes compiled, as our package does in a wheel; an editable one compiles itself at its first import.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = completed(command, cwd=folder, env=environment, timeout_s=300)
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stderr


@dataclass(frozen=True)
class Needed:
    """What a command imported, and the files of this checkout that it read beside these modules."""

    modules: frozenset[str]
    files: tuple[str, ...]


def needed(arguments: tuple[str, ...]) -> Needed:
    """What the command with these arguments needs in a process of its own."""
    program = (
        "import sys\n"
        "files = []\n"
        "def note(event, arguments):\n"
        "    if event == 'open' and isinstance(arguments[0], str):\n"
        "        files.append(arguments[0])\n"
        "sys.addaudithook(note)\n"
        "from provisioner.cli import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as stop:\n"
        "    assert not stop.code, stop.code\n"
        "print(*sorted(sys.modules), file=sys.stderr)\n"
        "print(*files, sep='|', file=sys.stderr)\n"
    )
    *_, modules, files = run((sys.executable, "-c", program, *arguments), ROOT).splitlines()
    return Needed(frozenset(modules.split()), tuple(files.split("|")))


@pytest.mark.parametrize("name", QUICK)
def test_quick_verbs_import_nothing_that_they_do_not_need(name: str) -> None:
    imported = needed(QUICK[name]).modules
    assert "provisioner.cli.app" in imported
    assert imported.isdisjoint({*HEAVY, *OTHERS.get(name, ())})


@pytest.mark.parametrize("name", MOST_MODULES)
def test_quick_verbs_import_no_more_than_they_need(name: str) -> None:
    imported = needed(QUICK[name]).modules
    ours = [module for module in imported if module.partition(".")[0] == "provisioner"]
    most_of_ours, most = MOST_MODULES[name]
    assert len(ours) <= most_of_ours, sorted(ours)
    assert len(imported) <= most, sorted(imported)


@pytest.mark.skipif(os.geteuid() != ROOT.stat().st_uid, reason="only the owner of a checkout has its catalog kept")
def test_validate_reads_no_page_of_a_role_whose_catalog_is_kept() -> None:
    needed(QUICK["validate"])
    read = needed(QUICK["validate"]).files
    assert str(FILE) in read
    assert [name for name in read if name.startswith(str(ROOT / "roles"))] == []
