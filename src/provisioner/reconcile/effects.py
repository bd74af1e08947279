"""Effects: all through which a verb touches the world, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from provisioner.hosts.base import Provider
from provisioner.values.errors import PreflightError, joined
from provisioner.values.events import Diagnostic, Event, Leftover, Orphan, PlannedChange
from provisioner.values.plan import ImpossiblePlanError, Plan
from provisioner.values.state import Fleet

if TYPE_CHECKING:  # Ansible's side is not needed where nothing has to be changed
    from provisioner.reconcile.artifacts import RunPlaybook
    from provisioner.reconcile.lock import Lease


class Confirm(Protocol):
    """Shows a plan and asks the user whether it may be carried out; an empty one is shown and needs no answer."""

    def __call__(self, plan: Plan, /) -> bool:
        """True to go on."""


@dataclass(frozen=True, slots=True)
class Effects:
    """Everything through which a verb touches the world; ``providers`` maps the file's hosts to their drivers."""

    providers: Mapping[str, Provider]
    run_playbook: RunPlaybook
    emit: Callable[[Event], None]
    confirm: Confirm

    def locked(self, lab: str, verb: str) -> AbstractContextManager[Lease]:
        """The lab's lock on every host for as long as the verb works; ``LockedError`` says who has it."""
        from provisioner.reconcile.lock import held

        return held(self.providers, lab, verb, say=lambda text: self.emit(Diagnostic("warning", text)))

    def announce(self, plan: Plan) -> None:
        """Say every change of the plan, the orphans and the leftovers."""
        for change in plan.changes:
            self.emit(PlannedChange(change.target, change.action, change.reason, change.attributes(), change.meanwhile))
        for orphan in plan.orphans:
            self.emit(Orphan(orphan.name, orphan.host))
        for address in plan.leftovers:
            self.emit(Leftover(address))

    def planned(self, make: Callable[[], Plan]) -> Plan:
        """The plan that ``make`` gives; where it is impossible, one ``PreflightError`` for all that is in its way."""
        try:
            return make()
        except ImpossiblePlanError as error:
            _, refusals = self._reviewed(error.plan)
            raise joined([*error.reasons, *refusals]) from error

    def review(self, plan: Plan, desired: Fleet) -> None:
        """Say what each host's driver knows of the changes on it, and whether it has room for them.

        Raises ``PreflightError`` for all that the drivers would refuse, else for disks for which there is no room.
        """
        notes, refusals = self._reviewed(plan)
        for note in notes:
            self.emit(Diagnostic("note", note))
        if refusals:
            raise joined(refusals)
        from provisioner.reconcile.capacity import check_capacity  # nothing that a run without changes needs

        check_capacity(desired, plan, self)

    def _reviewed(self, plan: Plan) -> tuple[list[str], list[PreflightError]]:
        notes: list[str] = []
        refusals: list[PreflightError] = []
        for name, provider in self.providers.items():
            mine = [one for one in plan.changes if getattr(one.after or one.before, "host", None) == name]
            try:
                notes += provider.review(mine) if mine else ()
            except PreflightError as error:
                refusals.append(error)
        return notes, refusals


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a verb did: the plan, and whether it was carried out."""

    plan: Plan
    applied: bool
