"""Memory of the controller: the peak of what all processes of ``up`` hold together, shared pages counted once."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.labs import BenchLab, Labs
from benchmarks.measuring import BIN, Row, say
from tests.processes import killed_at_end

MEMORY_SIZES = (1, 20)
LARGE_ROUNDS = 1
"""Of a change in the largest lab, which takes minutes."""
SAMPLE_S = 0.2
NOOP_SAMPLE_S = 0.02
"""A no-op is over in half a second."""
KIB_PER_MB = 1000 / 1.024


def rows(labs: Labs, rounds: int, sizes: Sequence[int] = MEMORY_SIZES) -> list[Row]:
    """Peaks in MB, of a no-op and of a change, in labs of 1 and 20 containers."""
    found = []
    for size in sizes:
        lab = labs.of(size)
        idle = [_peak(lab, NOOP_SAMPLE_S, f"no-op, {size}") for _ in range(rounds)]
        found.append(Row(f"no-op, {size}: memory", idle, "MB"))
        changed = []
        for number in range(LARGE_ROUNDS if size == max(MEMORY_SIZES) else rounds):
            lab.write(parallel=2 - number % 2)
            changed.append(_peak(lab, SAMPLE_S, f"changed, {size}"))
        found.append(Row(f"changed, {size}: memory", changed, "MB"))
    return found


def _peak(lab: BenchLab, sample_s: float, what: str) -> float:
    say(f"memory: {what}")
    peak = 0.0
    with killed_at_end(
        subprocess.Popen(
            [str(BIN / "provision"), "up", "--yes"],
            cwd=lab.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    ) as running:
        while _is_running(running, sample_s):
            peak = max(peak, sum(map(_pss_mb, _tree(running.pid))))
    if running.returncode:
        raise RuntimeError(f"Unable to measure the memory of up in {lab.name}: it ended with {running.returncode}")
    return peak


def _is_running(process: subprocess.Popen[bytes], wait_s: float) -> bool:
    try:
        process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return True
    return False


def _tree(root: int) -> set[int]:
    """The process and all that it has started, directly or not."""
    parents = dict(filter(None, map(_pid_and_parent, Path("/proc").glob("[0-9]*"))))
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _pid_and_parent(folder: Path) -> tuple[int, int] | None:
    try:
        text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None  # it has ended meanwhile
    # The second field is the program's name in parentheses, in which anything may stand.
    return int(folder.name), int(text.rpartition(")")[2].split()[1])


def _pss_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0  # it has ended meanwhile
    return next((int(line.split()[1]) / KIB_PER_MB for line in lines if line.startswith("Pss:")), 0.0)
