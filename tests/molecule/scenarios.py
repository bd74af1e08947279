"""Which Molecule scenarios there are, what each depends on, and which of them have passed on this machine.

A scenario that passed is remembered in the cache by the digest of its inputs, and not run again until one of them
changes. Which scenarios a run takes is decided here; running them is ``test_scenarios.py``'s, and what its inputs reach
is ``tests/inputs``'s.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tests.checkout import git
from tests.inputs.graph import NO_INPUT, Graph

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
FAILED_STEP = re.compile(r"Return code: [1-9]")
"""How Molecule ends what a program of a step has printed, where that failed."""
TOLD_LINES = 120
USUAL_S = 240.0
"""How long a scenario is taken to last that has never passed here."""

EVERY_SCENARIO_USES_ROLES = ("base", "container")
EVERY_LAB_USES_ROLES = ("model_store",)
"""Roles that make what a scenario's ``lab.yml`` asks for, without being named there."""

EVERY_SCENARIO_USES = (
    ".config/molecule",
    "src/provisioner/ansible/callback",
    "src/provisioner/ansible/connection",
    "tests/lab/incus.py",
    "tests/molecule/changes.py",
    "tests/molecule/test_scenarios.py",
    "tests/requirements.txt",
    "pyproject.toml",
)
EVERY_LAB_USES = ("src/provisioner/cli/artifacts.py",)
"""What makes, before a scenario with a ``lab.yml`` is created, what that file names (see molecule/shared)."""


@dataclass(frozen=True)
class Record:
    """What is remembered of the last passed run."""

    digest: str
    seconds: float


def names(root: Path) -> list[str]:
    """Every scenario of the checkout, what was changed last first: that is what a short run must not miss."""
    found = sorted(page.parent.name for page in root.glob("molecule/*/molecule.yml"))
    return sorted(found, key=lambda name: -changed_at(root, named_by(root, name)))


def named_by(root: Path, name: str) -> list[Path]:
    """What the scenario names: itself, roles, shared scenario files, what finds our plugins."""
    scenario = root / "molecule" / name
    words = {word for page in scenario.rglob("*.yml") for word in re.findall(r"\w+", page.read_text(encoding="utf-8"))}
    has_lab = (scenario / "lab.yml").is_file()
    words |= {name, *EVERY_SCENARIO_USES_ROLES}
    words |= set(EVERY_LAB_USES_ROLES) if has_lab else set()
    roles = [role for role in sorted((root / "roles").glob("*")) if role.name in words]
    shared = [path for path in sorted((root / "molecule").glob("*")) if not (path / "molecule.yml").is_file()]
    always = [root / path for path in (*EVERY_SCENARIO_USES, *(EVERY_LAB_USES if has_lab else ()))]
    return [scenario, *roles, *shared, *(path for path in always if path.exists())]


def inputs(graph: Graph, name: str) -> frozenset[str]:
    """All files on which the scenario depends: what it names, and what that reaches."""
    root = graph.tree.root
    seeds: list[str] = []
    for path in named_by(root, name):
        place = path.relative_to(root).as_posix()
        below = [file for file in graph.tree.below(place) if PurePosixPath(file).name not in NO_INPUT]
        seeds += below or [place]
    return graph.reached(seeds)


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


def what_failed(log: str) -> str:
    """The last lines of Molecule's log up to the first step that failed, without colours.

    After such a step Molecule destroys what it has made, which fills the end of the log. Without one the log's own end.
    """
    lines = [COLOUR.sub("", line) for line in log.splitlines()]
    ends = [number for number, line in enumerate(lines, 1) if FAILED_STEP.search(line)]
    upto = ends[0] if ends else len(lines)
    return "\n".join(lines[max(upto - TOLD_LINES, 0) : upto])


def read_record(folder: Path, name: str, *, younger_than_s: float = math.inf) -> Record | None:
    """What is remembered of the scenario; None when it did not pass here in that time."""
    file = folder / f"{name}.json"
    if not file.is_file() or file.stat().st_mtime < time.time() - younger_than_s:
        return None
    return Record(**json.loads(file.read_text(encoding="utf-8")))


def write_record(folder: Path, name: str, record: Record) -> None:
    """Remember that the scenario passed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(vars(record)), encoding="utf-8")
