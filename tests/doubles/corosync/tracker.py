"""Who was without quorum meanwhile: told by corosync's own notices on each node, so that no moment is missed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.doubles.corosync.machines import parallel
from tests.doubles.corosync.node import Node

UNIT = "lab-quorum-tracker"
FILE = "/run/lab-quorum-events"
START = (
    f"systemctl stop {UNIT} 2>/dev/null; rm -f {FILE}; "
    f"systemd-run -q --unit {UNIT} --setenv PYTHONPATH=/usr/lib/pve-lab python3 -P -m standin.quorum_events {FILE}"
)


@dataclass
class QuorumTracker:
    """``lost``: "pve1: lost quorum" and the like, in order; ``events``: everything that was told, by node."""

    lost: list[str] = field(default_factory=list)
    events: dict[str, list[str]] = field(default_factory=dict)

    def read(self, nodes: Sequence[Node]) -> None:
        """Take what was told until now."""
        self.events = {node.name: node.read(FILE).splitlines() for node in nodes}
        self.lost = [
            f"{name}: {line}" for name, lines in self.events.items() for line in lines if "quorate" not in line.split()
        ]


@contextmanager
def tracked(nodes: Sequence[Node]) -> Iterator[QuorumTracker]:
    """Follow these nodes' quorum; what was ``lost`` is there when the context has ended."""
    tracker = QuorumTracker()
    parallel(lambda node: node.run(START), nodes)
    for node in nodes:
        node.wait_for("tracked", f"test -s {FILE}")
    try:
        yield tracker
    finally:
        tracker.read(nodes)
        parallel(lambda node: node.run(f"systemctl stop {UNIT}", check=False), nodes)
