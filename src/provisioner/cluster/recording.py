"""Turns what Ansible says into the steps of a ``Record``, as it says it."""

from __future__ import annotations

from dataclasses import replace

from provisioner.reconcile.runner import TaskEvent
from provisioner.repair.record import CommandRecord, Record, StepRecord, StepStatus

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
        step = self._step_of(event)
        if step is None:
            return None
        if event.status == "start":
            return self._begin(step)
        if event.status != "retry":
            self._note(step, event)
        return None

    def _step_of(self, event: TaskEvent) -> StepRecord | None:
        name = event.task.partition(" | ")[0]
        for step in self.record.steps:
            if step.id == name:
                return step
        return None

    def _note(self, step: StepRecord, event: TaskEvent) -> None:
        """Note how a task of the step ended, with its commands."""
        if event.status == "skipped":
            self._skipped.add(step.id)
        else:
            self._ran.add(step.id)
        if event.status == "changed":
            self._changed.add(step.id)
        commands = list(step.commands)
        for command in event.commands:
            output = command.output[-OUTPUT_LIMIT:]
            commands.append(CommandRecord(event.host, command.argv, command.code, output, command.elapsed_s))
        step = replace(step, commands=tuple(commands))
        if event.status in {"failed", "unreachable"}:
            step = replace(step, status=StepStatus.FAILED, message=f"{event.host}: {event.message}")
        self._put(step)

    def end(self, error: str = "") -> Record:
        """The record when Ansible has ended, for the reason ``error`` before its time."""
        if not error:
            self._end_begun_steps()
        self.record = replace(self.record, error=error)
        return self.record

    def _begin(self, step: StepRecord) -> StepRecord | None:
        if step.status is StepStatus.BEGUN:
            return None
        self._end_begun_steps()
        begun = replace(step, status=StepStatus.BEGUN, message="")
        self._put(begun)
        self.record = replace(self.record, begun=tuple(dict.fromkeys((*self.record.begun, step.id))))
        return begun

    def _end_begun_steps(self) -> None:
        for step in self.record.steps:
            if step.status is StepStatus.BEGUN:
                self._put(replace(step, status=self._ended(step.id)))

    def _ended(self, step: str) -> StepStatus:
        """How a step ended of which no task failed; one whose tasks were all skipped was left out."""
        if step in self._changed:
            return StepStatus.DONE
        if step in self._skipped and step not in self._ran:
            return StepStatus.LEFT_OUT
        return StepStatus.UNCHANGED

    def _put(self, step: StepRecord) -> None:
        """Have ``step`` in the place of the step with its id."""
        steps = list(self.record.steps)
        for number, there in enumerate(steps):
            if there.id == step.id:
                steps[number] = step
        self.record = replace(self.record, steps=tuple(steps))
