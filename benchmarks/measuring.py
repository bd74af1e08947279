"""Measured values and how they are taken."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Row:
    """One line of the table: what was measured, how often, and the median."""

    what: str
    values: Sequence[float]
    unit: str

    @property
    def median(self) -> float:
        """The median of all runs."""
        return statistics.median(self.values)


@dataclass(frozen=True)
class Cost:
    """What a command took: seconds on the wall and of the processors (its own and its children's)."""

    wall_s: float
    cpu_s: float


def cost(command: Sequence[str], environment: Mapping[str, str], folder: Path = ROOT) -> Cost:
    """Run a command that must succeed and give what it took."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), monotonic()
    # An editable package compiles itself at its first import, as an installed one is.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, cwd=folder, env={**inherited, **environment}, capture_output=True, check=True)
    wall_s, after = monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
