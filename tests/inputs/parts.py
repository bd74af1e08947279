"""The parts that a whole run consists of: a test file each, and a Molecule scenario each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

SCENARIOS = "tests/molecule/test_scenarios.py"
SCENARIO = re.compile(rf"{re.escape(SCENARIOS)}::test_scenario\[(\w+)\]")
FOLLOWED = ("tests/unit/", "tests/integration/")
"""Test files of which it is known what they depend on; of the others it is the whole checkout."""


def part_of(nodeid: str) -> str:
    """The part to which a test belongs."""
    return nodeid if SCENARIO.fullmatch(nodeid) else nodeid.partition("::")[0]


def scenario_of(part: str) -> str:
    """The name of the scenario that the part is; nothing for a test file."""
    found = SCENARIO.fullmatch(part)
    return found[1] if found else ""


def all_parts(files: Iterable[str]) -> list[str]:
    """Every part of a checkout with these files, in the order of their names."""
    parts = []
    for file in files:
        path = PurePosixPath(file)
        if file.startswith("tests/") and path.name.startswith("test_") and path.suffix == ".py" and file != SCENARIOS:
            parts.append(file)
        if path.match("molecule/*/molecule.yml") and len(path.parts) == 3:
            parts.append(f"{SCENARIOS}::test_scenario[{path.parent.name}]")
    return sorted(parts)


def shard_of(parts: list[str], number: int, count: int) -> list[str]:
    """The parts of shard ``number`` (from 1) of ``count``: neighbours, which often take as long, are spread."""
    return parts[number - 1 :: count]
