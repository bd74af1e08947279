"""The verb ``verify``: every service proves itself again; and how proofs are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from provisioner.lab.opening import Lab
from provisioner.screens import gather
from provisioner.unit_journals import explained
from provisioner.values.address import Address
from provisioner.values.errors import ProviderError, VerificationError
from provisioner.values.events import Check, Diagnostic
from provisioner.values.plan import Change
from provisioner.values.state import Finding, Fleet, Instance, Status
from provisioner.verify import judge
from provisioner.workflow import unfinished
from provisioner.workflow.effects import Effects
from provisioner.workflow.surveying import is_running, survey

if TYPE_CHECKING:
    from provisioner.workflow.proving import Proofs

AFTER_REBOOT = "it is to prove itself after a start"
RESTART = "restart"
"""What is noted of a container from its stop to its start."""
NOTHING: Mapping[Address, str] = {}


@dataclass(frozen=True, slots=True)
class Verified:
    """What is not as it should be, and why services could not be asked, by their addresses."""

    findings: tuple[Finding, ...]
    not_asked: Mapping[Address, str]


def verify(lab: Lab, effects: Effects, targets: Sequence[str] = (), *, wake: bool = False) -> Verified:
    """Prove every service again by its role's own verification; changes and stops nothing.

    One that is busy is waited for, and is no finding where it stays so; one that is asleep is left so, unless ``wake``.
    """
    from provisioner.audit.questions import SHORT
    from provisioner.workflow.auditing import audited
    from provisioner.workflow.fitting import remember_use
    from provisioner.workflow.proving import keep_proofs, proofs_of

    seen = survey(lab, effects, targets, needs_cards=False)
    provable = tuple(one for one in seen.wanted if one.name not in seen.cardless)
    running = tuple(one for one in provable if is_running(one, seen.actual))
    asked = proofs_of(running, seen.facts, effects, wake=wake)
    remember_use(lab, seen.cards, asked.proofs, effects.emit)
    keep_proofs(lab, "verify", asked.proofs, effects.emit)
    gather(running, effects.providers, lab.folder, effects.emit)
    cardless = (
        Finding(Address.of(one.name), "it gets no card", seen.cardless[one.name], "See: provision doctor")
        for one in seen.wanted
        if one.name in seen.cardless
    )
    judged = judge(Fleet(lab.name, provable), seen.actual, (*asked.facts, *asked.proofs))
    opened = audited(lab, running, asked.facts, effects, SHORT)
    left = [check for check in opened.checks if check.not_asked]
    _say_what_was_left(left, asked.not_asked, effects)
    findings = (*explained(judged, running, effects.providers, asked.facts), *cardless, *opened.findings)
    announce_checks(seen.wanted, findings, effects, asked)
    return Verified(findings, asked.not_asked)


def _say_what_was_left(left: Sequence[Check], not_asked: Mapping[Address, str], effects: Effects) -> None:
    """Say of what services open the short audit did not see all; of those that nobody asked it is known already."""
    for check in left:
        if check.target in not_asked:
            continue
        note = Diagnostic(
            "note",
            f"Not all that {check.target} opens was looked at: {check.message}",
        )
        effects.emit(note)


def restart(lab: Lab, effects: Effects, targets: Sequence[str] = ()) -> tuple[str, ...]:
    """Stop and start containers that run, and wait until their services have come up by themselves; their names.

    All that have services, or those that are named: what came up once by hand, and would not after a start of the
    host, shows itself. Holds the lab's lock. One that does not come up keeps no other one from being started;
    ``VerificationError`` then says which it was and why.
    """
    from provisioner.apply import apply_instances  # a verb that changes nothing needs it not
    from provisioner.workflow.settling import settled

    with effects.locked(lab.name, "verify") as lease:
        seen = survey(lab, effects, targets)
        stopped = unfinished.noted(lab.name, RESTART, effects)
        candidates = [one for one in seen.wanted if one.services or targets]
        running = [one for one in candidates if is_running(one, seen.actual) or one.name in stopped]
        there = []
        for one in running:
            found = seen.actual.instance(one.name)
            if found is not None:
                there.append(replace(found, stop_s=one.stop_s))
        lease.check()
        unfinished.note(there, RESTART, effects)
        up = [one for one in there if one.status is Status.RUNNING]
        stops = [Change("stop", one.name, one, one, AFTER_REBOOT) for one in up]
        apply_instances(stops, effects.providers, effects.emit)
        failures = _start(there, effects)
        unfinished.forget(there, effects)
        _refuse_failures(failures)
        settled(running, effects)
    return tuple(one.name for one in running)


def _start(stopped: Sequence[Instance], effects: Effects) -> list[ProviderError]:
    """What kept containers from coming up; one that does not keeps no other one from being started."""
    from provisioner.apply import apply_instances

    failures = []
    for one in stopped:
        change = Change("start", one.name, one, replace(one, status=None), AFTER_REBOOT)
        try:
            apply_instances([change], effects.providers, effects.emit)
        except ProviderError as error:
            failures.append(error)
    return failures


def _refuse_failures(failures: Sequence[ProviderError]) -> None:
    if failures:
        raise VerificationError(
            "Unable to prove that the lab works after a start of its containers",
            details="\n".join(f"{error.message}\n{error.details}" for error in failures),
            resolution=failures[0].resolution or "Look at the host: provision doctor",
        )


def announce_checks(
    wanted: Sequence[Instance],
    findings: Sequence[Finding],
    effects: Effects,
    asked: Proofs | None = None,
) -> None:
    """Say of each service whether it works, or why it was not asked."""
    not_asked = asked.not_asked if asked else NOTHING
    failed = {finding.subject: finding for finding in findings}
    for one in wanted:
        for service in one.services:
            finding = failed.get(service.address) or failed.get(Address.of(one.name))
            if finding is None and service.address in not_asked:
                why = f"not asked: {not_asked[service.address]}"
                is_asleep = asked is not None and service.address in asked.asleep
                effects.emit(Check(service.address, service.role, None, why, not_asked=True, asleep=is_asleep))
                continue
            message = finding.message if finding else "works"
            effects.emit(Check(service.address, service.role, finding is None, message))
