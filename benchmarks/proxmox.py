"""``provision plan`` of containers on Proxmox: how it grows with ours, and that strangers cost nothing."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.labs import Labs
from benchmarks.measuring import BIN, ROOT, Cost, Row, cost, say
from provisioner.hosts.proxmox.access import SSH_CONFIG
from tests.processes import killed_at_end
from tests.waiting import PATIENCE_S

WORLDS = ((10, 1000), (50, 1000), (100, 1000), (100, 0))
"""Containers of the lab, and of strangers, on one node."""
FEW, SOME, MANY = (f"plan on Proxmox, {owned} owned, {strangers} strangers" for owned, strangers in WORLDS[:3])
ALONE = f"plan on Proxmox, {WORLDS[3][0]} owned, {WORLDS[3][1]} strangers"


def rows(_labs: Labs, rounds: int) -> list[Row]:
    """Seconds of a plan at 10 ms a call, and two ratios: of equal steps in what is ours, and of strangers or none."""
    found = {}
    for owned, strangers in WORLDS:
        what = f"plan on Proxmox, {owned} owned, {strangers} strangers"
        say(f"proxmox: {what}")
        with _world(owned, strangers) as folder:
            costs = [_planned(folder, owned) for _ in range(rounds)]
        found[what] = Row(what, [one.wall_s for one in costs], "s", [one.cpu_s for one in costs])
    medians = {what: statistics.median(row.values) for what, row in found.items()}
    per_step = (medians[MANY] - medians[SOME]) / 50 / ((medians[SOME] - medians[FEW]) / 40)
    return [
        *found.values(),
        Row("plan on Proxmox: each of the last 50 owned / each of the 40 before", [per_step] * rounds, "ratio"),
        Row("plan on Proxmox: 1000 strangers / none", [medians[MANY] / medians[ALONE]] * rounds, "ratio"),
    ]


def _planned(folder: Path, owned: int) -> Cost:
    environment = {SSH_CONFIG: str(folder / "ssh_config")}
    made = cost([str(BIN / "provision"), "plan", "--no-color"], environment, folder)
    if f"{owned} to start" not in made.output:
        raise RuntimeError(f"Unable to measure a plan: it is not of {owned} starts\n{made.output[-1000:]}")
    return made


@contextmanager
def _world(owned: int, strangers: int) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bench-proxmox-") as folder:
        command = [sys.executable, "-m", "benchmarks.proxmox_world", folder, str(owned), str(strangers)]
        with killed_at_end(
            subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ) as running:
            try:
                if running.stdout is None or running.stdout.readline() != "ready\n":
                    raise RuntimeError("Unable to bring up a Proxmox to be measured with: see above")
                yield Path(folder)
            finally:
                if running.stdin is not None:
                    running.stdin.close()
                running.wait(PATIENCE_S)
