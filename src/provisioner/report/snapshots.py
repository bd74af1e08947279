"""The snapshots of each container, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.report.style import PLAIN, Style, table
from provisioner.values.state import Instance

_HEAD = ("CONTAINER", "SNAPSHOT", "TAKEN")


def snapshots_text(instances: Sequence[Instance], style: Style = PLAIN) -> str:
    """One row per snapshot, the oldest first."""
    rows: list[tuple[str, ...]] = []
    for instance in instances:
        rows += [(instance.name, snapshot.name, snapshot.created) for snapshot in instance.snapshots]
    if not rows:
        return "No snapshots are kept."
    return table(_HEAD, rows, style)
