"""What is kept of each container, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.report.style import PLAIN, Style, table
from provisioner.state import Instance

_HEAD = ("CONTAINER", "SNAPSHOT", "TAKEN")


def snapshots_text(instances: Sequence[Instance], style: Style = PLAIN) -> str:
    """One row per snapshot, the oldest first."""
    rows = [(one.name, kept.name, kept.created) for one in instances for kept in one.snapshots]
    return table(_HEAD, rows, style) if rows else "No snapshots are kept."
