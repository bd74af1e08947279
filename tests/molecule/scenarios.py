"""Which Molecule scenarios there are, what each depends on, and which of them have passed on this machine.

A scenario that passed is remembered in the cache by the digest of its inputs, and not run again until one of them
changes. Which scenarios a run takes is decided here; running them is ``test_scenarios.py``'s.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.checkout import git

USUAL_S = 240.0
"""How long a scenario is taken to last that has never passed here."""

EVERY_SCENARIO_USES_ROLES = ("base", "container")
EVERY_LAB_USES_ROLES = ("model_store",)
"""Roles that make what a scenario's ``lab.yml`` asks for, without being named there."""

EVERY_SCENARIO_USES = (
    ".config/molecule",
    "src/provisioner/ansible",
    "src/provisioner/artifacts",
    "src/provisioner/providers/__init__.py",
    "src/provisioner/providers/base.py",
    "src/provisioner/providers/incus",
    "src/provisioner/plan.py",
    "src/provisioner/apply.py",
    "src/provisioner/lab/upkeep.py",
    "tests/molecule/changes.py",
    "tests/requirements.txt",
)
LEFT_OUT = {"__pycache__", ".provision", ".pytest_cache", "README.md"}


@dataclass(frozen=True)
class Record:
    """What is remembered of the last passed run."""

    digest: str
    seconds: float


def names(root: Path) -> list[str]:
    """Every scenario of the checkout, what was changed last first: that is what a short run must not miss."""
    found = sorted(page.parent.name for page in root.glob("molecule/*/molecule.yml"))
    return sorted(found, key=lambda name: -changed_at(root, inputs(root, name)))


def inputs(root: Path, name: str) -> list[Path]:
    """What the scenario depends on: itself, the roles it names, shared scenario files, plugins, drivers."""
    scenario = root / "molecule" / name
    words = {word for page in scenario.rglob("*.yml") for word in re.findall(r"\w+", page.read_text(encoding="utf-8"))}
    words |= {name, *EVERY_SCENARIO_USES_ROLES}
    words |= set(EVERY_LAB_USES_ROLES) if (scenario / "lab.yml").is_file() else set()
    roles = [role for role in sorted((root / "roles").glob("*")) if role.name in words]
    shared = [path for path in sorted((root / "molecule").glob("*")) if not (path / "molecule.yml").is_file()]
    always = [root / path for path in EVERY_SCENARIO_USES if (root / path).exists()]
    return [scenario, *roles, *shared, *always]


def digest(root: Path, paths: Iterable[Path]) -> str:
    """SHA-256 over names, modes' executable bit and contents of all files in ``paths``."""
    total = hashlib.sha256()
    for path in sorted(_files(paths)):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        executable = bool(path.stat().st_mode & 0o100)
        total.update(f"{path.relative_to(root)}\0{executable}\0{content}\n".encode())
    return total.hexdigest()


def changed_at(root: Path, paths: Iterable[Path]) -> float:
    """When ``paths`` were last changed, as git knows it (Unix time): infinity when not committed, 0 without git."""
    where = ("--", *map(str, paths))
    try:
        if git(root, "status", "--porcelain", *where):
            return float("inf")
        return float(git(root, "log", "-1", "--format=%ct", *where).strip() or 0)
    except subprocess.CalledProcessError:
        return 0.0


def reason_to_skip(name: str, now: str, record: Record | None, *, elapsed_s: float, budget_s: float) -> str | None:
    """Why the scenario with inputs ``now`` is not taken into this run; None when it is."""
    if record and record.digest == now:
        return f"{name}: passed on this machine with these inputs before ({record.seconds:.0f} s)"
    usual = record.seconds if record else USUAL_S
    if elapsed_s + usual > budget_s:
        return f"{name}: left for the next run, {elapsed_s / 60:.0f} of {budget_s / 60:.0f} minutes are used"
    return None


def read_record(folder: Path, name: str) -> Record | None:
    """What is remembered of the scenario; None when it never passed here."""
    file = folder / f"{name}.json"
    return Record(**json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else None


def write_record(folder: Path, name: str, record: Record) -> None:
    """Remember that the scenario passed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(vars(record)), encoding="utf-8")


def _files(paths: Iterable[Path]) -> Iterable[Path]:
    for path in paths:
        for file in path.rglob("*") if path.is_dir() else (path,):
            if file.is_file() and not LEFT_OUT.intersection(file.parts):
                yield file
