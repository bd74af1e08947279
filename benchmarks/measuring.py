"""Measured values and how they are taken."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Row:
    """One line of the table: what was measured and every run of it, or why it was not measured.

    ``cpu_s``: CPU seconds of the controller's processes, ``inside_s``: of all containers, run by run.
    Of a ratio ``cpu_s`` is the ratio of both sums.
    """

    what: str
    values: Sequence[float]
    unit: str
    cpu_s: Sequence[float] = ()
    inside_s: Sequence[float] = ()
    why_not: str = ""

    @property
    def median(self) -> float:
        """The median of all runs."""
        return statistics.median(self.values)

    def line(self) -> str:
        """The row as Markdown."""
        if not self.values:
            return f"| {self.what} | not measured: {self.why_not} | | | | 0 |"
        beside = [f"{statistics.median(values):.3f}" if values else "" for values in (self.cpu_s, self.inside_s)]
        return f"| {self.what} | {self.median:.3f} | {self.unit} | {' | '.join(beside)} | {len(self.values)} |"


HEADER = "| what | median | unit | CPU s | CPU s inside | runs |\n|---|---|---|---|---|---|\n"


@dataclass(frozen=True)
class Cost:
    """What a command took: seconds on the wall and of the CPUs (its own and its children's), and what it wrote."""

    wall_s: float
    cpu_s: float
    output: str = ""
    stderr: str = ""
    inside_s: float = 0.0
    """CPU seconds of the containers meanwhile."""

    @property
    def all_cpu_s(self) -> float:
        """CPU seconds here and in the containers."""
        return self.cpu_s + self.inside_s


@dataclass(frozen=True)
class Way:
    """One of several ways to do the same; ``rounds``: in how many of the first rounds it takes part."""

    name: str
    run: Callable[[], Cost]
    rounds: int


def cost(command: Sequence[str], environment: Mapping[str, str], folder: Path = ROOT) -> Cost:
    """Run a command that must succeed and give what it took."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), monotonic()
    # An editable package compiles itself at its first import, as an installed one is.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    ran = subprocess.run(
        command,
        cwd=folder,
        env={**inherited, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=3600,
    )
    wall_s, after = monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if ran.returncode:
        said = f"{ran.stdout[-4000:]}\n{ran.stderr[-2000:]}"
        raise RuntimeError(f"Unable to measure {' '.join(command)}: it ended with {ran.returncode}\n{said}")
    return Cost(wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, ran.stdout, ran.stderr)


def in_turns(ways: Iterable[Way]) -> dict[str, list[Cost]]:
    """What each way took, round by round; in each round all take their turn, so that load falls on all alike."""
    ways = list(ways)
    taken: dict[str, list[Cost]] = {way.name: [] for way in ways}
    rounds = max((way.rounds for way in ways), default=0)
    for number in range(rounds):
        for way in ways:
            if number < way.rounds:
                done = way.run()
                say(f"round {number + 1} of {rounds}: {way.name}: {done.wall_s:.2f} s")
                taken[way.name].append(done)
    return taken


def cost_row(what: str, costs: Sequence[Cost]) -> Row:
    """Seconds on the wall, with the CPU seconds beside them."""
    return Row(what, [one.wall_s for one in costs], "s", [one.cpu_s for one in costs], [one.inside_s for one in costs])


def ratio_row(what: str, costs: Sequence[Cost], others: Sequence[Cost]) -> Row:
    """By how much the first took longer, round by round; rounds in which one of them did not take part do not count."""
    pairs = list(zip(costs, others, strict=False))
    return Row(
        what,
        [mine.wall_s / other.wall_s for mine, other in pairs],
        "x",
        [mine.all_cpu_s / other.all_cpu_s for mine, other in pairs],
    )


def say(text: str) -> None:
    """Tell whoever waits; the table is on stdout."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
