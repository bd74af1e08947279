"""What the verbs that mend a cluster share: the word on a dry run, how the world is touched, and a wrong runbook."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from provisioner.cli.session import Session
from provisioner.values.errors import PreflightError

if TYPE_CHECKING:  # imported when a verb looks at a cluster
    from provisioner.workflow.repairing import Hands

DRY = "Nothing was changed. The same command with --yes does it."


def hands(session: Session) -> Hands:
    """How repairs touch the world."""
    from provisioner.reconcile.runner import run_playbook
    from provisioner.workflow.repairing import Hands

    return Hands(session.run_playbook or run_playbook, session.console.emit)


def require_needed(runbook: str, needed: Collection[str], node: str, verb: str) -> None:
    """Raise ``PreflightError`` when ``runbook`` was asked for (empty: none was) and the node needs others."""
    if runbook and runbook not in needed:
        raise PreflightError(
            f"Unable to run {runbook} for {node}: that is not what it needs",
            details=f"It needs: {', '.join(needed) or 'nothing'}",
            resolution=f"See: provision cluster {verb} {node}",
        )
