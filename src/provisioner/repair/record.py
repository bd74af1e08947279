"""What a repair did, step by step, as one value: what reports show and what the next run reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from provisioner.repair.conditions import Diagnosis


class StepStatus(StrEnum):
    """How a step ended."""

    DONE = "done"
    UNCHANGED = "nothing to do"
    LEFT_OUT = "left out"
    """What the repair found or was told did not ask for it."""
    FAILED = "failed"
    NOT_REACHED = "not reached"
    BEGUN = "begun"
    """It was at this step when it was killed: what of it was done is not known."""


@dataclass(frozen=True, slots=True)
class CommandRecord:
    """One command on ``host``: what was run, its exit code (None: not known), and what it wrote; no secret is in it."""

    host: str
    argv: tuple[str, ...]
    code: int | None
    output: str = ""
    elapsed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of a runbook, by its id there."""

    id: str
    does: str
    status: StepStatus
    commands: tuple[CommandRecord, ...] = ()
    message: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """One run of a runbook on ``node`` of ``cluster``; times are ISO 8601 in UTC.

    ``before`` and ``after``: what the check said. ``backup``: the folder on this machine, empty where none was needed.
    ``error``: why it did not come to its end; empty when it did. ``begun``: the ids of the steps that were ever begun,
    in this attempt or in one before it that was killed or failed. ``plan``: what was proved and decided before it.
    """

    runbook: str
    cluster: str
    node: str
    lead: str
    began: str
    ended: str = ""
    before: tuple[Diagnosis, ...] = ()
    after: tuple[Diagnosis, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    backup: str = ""
    error: str = ""
    begun: tuple[str, ...] = ()
    plan: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_unfinished(self) -> bool:
        """Whether it was killed, or failed: what it left may be neither the old state nor the new one."""
        return not self.ended or bool(self.error)

    def has_begun(self, *steps: str) -> bool:
        """Whether one of the steps with these ids may have changed something, now or in an attempt before."""
        return not set(steps).isdisjoint(self.begun)
