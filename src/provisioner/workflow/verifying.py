"""The verb ``verify``: every service proves itself again; and how proofs are told."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.events import Check
from provisioner.lab import Lab
from provisioner.state import Finding, Fleet, Instance
from provisioner.verify import judge
from provisioner.workflow.effects import Effects
from provisioner.workflow.fitting import remember_use
from provisioner.workflow.surveying import is_running, survey


def verify(lab: Lab, effects: Effects, targets: Sequence[str] = ()) -> tuple[Finding, ...]:
    """Prove every service again by its role's own verification; changes and stops nothing."""
    from provisioner.configure import prove

    seen = survey(lab, effects, targets)
    running = tuple(one for one in seen.wanted if is_running(one, seen.actual))
    proofs = prove(running, effects.providers, run_playbook=effects.run_playbook, emit=effects.emit)
    remember_use(lab, seen.cards, proofs, effects.emit)
    findings = judge(Fleet(lab.name, seen.wanted), seen.actual, (*seen.facts, *proofs))
    announce_checks(seen.wanted, findings, effects)
    return findings


def announce_checks(wanted: Sequence[Instance], findings: Sequence[Finding], effects: Effects) -> None:
    """Say of each service whether it works."""
    failed = {finding.subject: finding for finding in findings}
    for one in wanted:
        for service in one.services:
            finding = failed.get(service.address) or failed.get(one.name)
            message = finding.message if finding else "works"
            effects.emit(Check(service.address, service.role, finding is None, message))
