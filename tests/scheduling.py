"""What may run beside what when a test run has two workers (`make test`), and in which order.

A file is run by one worker from its first test to its last. Beyond that, the tests of two kinds use something in turn,
so that all of a kind go to one worker:

* whole runs of ``up`` and Molecule's scenarios build into the same volumes of the lab's Incus, and delete there what
  nobody uses at that moment;
* the cluster's tests make, break and heal the same nodes.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

TOGETHER = {
    "tests/integration/up/": "artifacts",
    "tests/molecule/": "artifacts",
    "tests/integration/cluster/": "cluster",
}
ORDER = ("lint", "unit", "integration", "molecule")
"""Of one worker: what fails quickly comes first."""
LONGEST = "integration/up"
"""Of two: one begins with what takes longest, the other takes the rest."""


REAL = "integration/"
"""Where tests meet real daemons, for minutes each."""


def is_too_late(path: str, *, elapsed_s: float, budget_s: float) -> bool:
    """Whether a test of a file below ``tests`` is left for another run: a real one, when the time for them is over."""
    return path.startswith(REAL) and elapsed_s > budget_s


def rank(path: str, *, workers: bool) -> int:
    """The place of a file below ``tests`` in the order of a run."""
    if workers and path.startswith(f"{LONGEST}/"):
        return -1
    folder = path.partition("/")[0]
    return ORDER.index(folder) if folder in ORDER else len(ORDER)


def scope(nodeid: str) -> str:
    """The name of what has to be run by one worker, of which this test is a part."""
    return next((name for folder, name in TOGETHER.items() if nodeid.startswith(folder)), nodeid.partition("::")[0])


class ByScope(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each worker a scope at a time, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)
