"""The goals, each with where it comes from, and whether measured rows reach them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.measuring import Row
from provisioner.measuring.speech import FORMATS

SIZES = (1, 5, 20)
"""Containers of the labs that are measured."""
ISSUE_3, ISSUE_4, ISSUE_9 = "issue 3, Speed", "issue 4, Speed", "issue 9, Speed"
ISSUE_10, ISSUE_11 = "issue 10, Speed", "issue 11, Speed"
ISSUE_21, ISSUE_54, ISSUE_58 = "issue 21, Figures", "issue 54, Must hold", "issue 58, Must hold"


@dataclass(frozen=True)
class Goal:
    """The median of a row of a benchmark must not be above ``limit``; fewer than ``runs`` prove nothing."""

    benchmark: str
    row: str
    limit: float
    runs: int = 5
    source: str = ISSUE_3

    def miss(self, rows: Sequence[Row]) -> str:
        """Why the goal is missed; nothing when it is reached. What was not measured is missed, too."""
        found = next((one for one in rows if one.what == self.row), None)
        if found is None or not found.values:
            why = found.why_not if found else "there is no such row"
            return f"{self.row}: not measured ({why}); the goal is {self.limit:g} ({self.source})"
        words = f"{self.row}: {found.median:.3f} {found.unit}, the goal is {self.limit:g} ({self.source})"
        if len(found.values) < self.runs:
            return f"{words}; {len(found.values)} runs are too few, {self.runs} are needed"
        return words if found.median > self.limit else ""


GOALS = (
    Goal("noop", "no-op, 1: up / ansible-playbook", 0.05),
    Goal("noop", "no-op, 5: up / ansible-playbook", 0.05),
    Goal("noop", "no-op, 20: up / ansible-playbook", 0.05, runs=1),  # ansible-playbook takes minutes there
    Goal("noop", "no-op, 1: up / pyinfra", 0.28, source=ISSUE_21),
    *(Goal("noop", f"no-op, {size}: up / pyinfra", 0.25) for size in SIZES[1:]),
    *(Goal("noop", f"no-op, {size}: up / (2 x true + start)", 1.0) for size in SIZES),
    Goal("noop", "no-op: 20 / 1", 6.0),
    *(Goal("noop", f"no-op, {size}: sent per container", 16.0, runs=1) for size in SIZES),
    Goal("changed", "changed, 1: up / ansible-playbook", 0.45, source=ISSUE_21),
    Goal("changed", "changed, 5: up / ansible-playbook", 0.40, source=ISSUE_21),
    Goal("transports", "20 tasks: ours / Mitogen", 1.3, source=ISSUE_21),
    Goal("changed", "one drifted of 5: containers that Ansible ran in", 1.0),
    Goal("up", "up, from nothing", 15.0, source=ISSUE_21),
    Goal("cli", "provision validate / ansible-playbook --syntax-check", 0.40, source=ISSUE_21),
    Goal("cli", "provision --help - python -c 'import click'", 0.09, source=ISSUE_54),
    Goal("memory", "no-op, 1: memory", 150.0),
    Goal("memory", "changed, 1: memory", 150.0),
    Goal("memory", "no-op, 20: memory", 450.0),
    Goal("memory", "changed, 20: memory", 450.0, runs=1),  # takes minutes
    Goal("proxmox", "plan on Proxmox, 100 owned, 1000 strangers", 3.0, source=ISSUE_4),
    Goal("proxmox", "plan on Proxmox: each of the last 50 owned / each of the 40 before", 1.3, source=ISSUE_4),
    Goal("proxmox", "plan on Proxmox: 1000 strangers / none", 1.3, source=ISSUE_4),
    *(Goal("speech", f"speech, two sentences, {form}: first / last audio", 0.45, 3, ISSUE_9) for form in FORMATS),
    # A round takes minutes.
    Goal("desktop", "desktop: up without its proof / its packages alone", 1.15, 1, ISSUE_10),
    Goal("desktop", "desktop: clone, start and a login with panels", 15.0, 1, ISSUE_10),
    Goal("desktop", "desktop: panels after connecting", 10.0, 1, ISSUE_10),
    Goal("cluster", "cluster check, 3 nodes", 2.5, source=ISSUE_58),
    Goal("looks", "20 looks: Proxmox / Incus", 1.3, source=ISSUE_58),
    Goal("homes", "no-op, 20: up on Proxmox / on Incus", 1.3, source=ISSUE_58),
    Goal("homes", "20 tasks of Ansible: Proxmox / Incus", 1.2, source=ISSUE_58),
    Goal("homes", "no-op, 20 on Proxmox: commands over ssh", 1.0, source=ISSUE_11),
    Goal("homes", "no-op, 20 on Proxmox: containers entered by lxc-attach", 20.0, source=ISSUE_58),
)


def misses(rows: Sequence[Row], benchmarks: Iterable[str], goals: Sequence[Goal] = GOALS) -> list[str]:
    """A line for every goal of the ``benchmarks`` that is missed."""
    named = frozenset(benchmarks)
    return [text for goal in goals if goal.benchmark in named and (text := goal.miss(rows))]
