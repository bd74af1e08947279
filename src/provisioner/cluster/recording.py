"""Turns what Ansible says into the steps of a ``Record``, as it says it."""

from __future__ import annotations

from dataclasses import replace

from provisioner.repair.record import CommandRecord, Record, StepRecord, StepStatus
from provisioner.runner.events import TaskEvent

OUTPUT_LIMIT = 20_000
"""Characters of a command's output that are kept: its last ones."""


class Recorder:
    """The record of a run that goes on; a task belongs to the step whose id its name begins with ("stop | …")."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._changed: set[str] = set()
        self._skipped: set[str] = set()
        self._ran: set[str] = set()

    def take(self, event: TaskEvent) -> StepRecord | None:
        """Note one event; the step that has just begun with it, or None."""
        name = event.task.partition(" | ")[0]
        step = next((one for one in self.record.steps if one.id == name), None)
        if step is None:
            return None
        if event.status == "start":
            return self._begin(step)
        if event.status == "retry":
            return None
        (self._skipped if event.status == "skipped" else self._ran).add(step.id)
        if event.status == "changed":
            self._changed.add(step.id)
        commands = tuple(
            CommandRecord(event.host, one.argv, one.code, one.output[-OUTPUT_LIMIT:], one.elapsed_s)
            for one in event.commands
        )
        step = replace(step, commands=(*step.commands, *commands))
        if event.status in {"failed", "unreachable"}:
            step = replace(step, status=StepStatus.FAILED, message=f"{event.host}: {event.message}")
        self._put(step)
        return None

    def end(self, error: str = "") -> Record:
        """The record when Ansible has ended, for the reason ``error`` before its time."""
        if not error:
            self._settle()
        self.record = replace(self.record, error=error)
        return self.record

    def _begin(self, step: StepRecord) -> StepRecord | None:
        if step.status is StepStatus.BEGUN:
            return None
        self._settle()
        begun = replace(step, status=StepStatus.BEGUN, message="")
        self._put(begun)
        self.record = replace(self.record, begun=tuple(dict.fromkeys((*self.record.begun, step.id))))
        return begun

    def _settle(self) -> None:
        for one in self.record.steps:
            if one.status is StepStatus.BEGUN:
                self._put(replace(one, status=self._ended(one.id)))

    def _ended(self, step: str) -> StepStatus:
        """How a step ended of which no task failed; one whose tasks were all skipped was left out."""
        if step in self._changed:
            return StepStatus.DONE
        return StepStatus.LEFT_OUT if step in self._skipped - self._ran else StepStatus.UNCHANGED

    def _put(self, step: StepRecord) -> None:
        steps = tuple(step if one.id == step.id else one for one in self.record.steps)
        self.record = replace(self.record, steps=steps)
