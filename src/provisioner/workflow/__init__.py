"""The verbs as straight lists of calls; everything that touches the world is an argument (``Effects``)."""

from __future__ import annotations

from provisioner.workflow.effects import Confirm, Effects, Outcome
from provisioner.workflow.ending import destroy, down
from provisioner.workflow.keeping import clone, rollback, snapshot
from provisioner.workflow.preparing import prepare_host
from provisioner.workflow.surveying import observe, plan, status
from provisioner.workflow.up import How, up
from provisioner.workflow.verifying import verify

__all__ = [
    "Confirm",
    "Effects",
    "How",
    "Outcome",
    "clone",
    "destroy",
    "down",
    "observe",
    "plan",
    "prepare_host",
    "rollback",
    "snapshot",
    "status",
    "up",
    "verify",
]
