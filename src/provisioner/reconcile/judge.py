"""Findings from what was seen of a lab's services, and what computes for them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from provisioner.services.base import Processor
from provisioner.values.address import Address
from provisioner.values.facts import (
    STILL_CLOSED,
    Closed,
    ContainerFact,
    Health,
    Proof,
    UnitState,
    Verdict,
    by_address,
)
from provisioner.values.state import Finding, Fleet, Instance, Service, Status

UNSEEN = "not known: nobody looked"
"""What was not looked at is never fine."""
CPU, UNPROVEN, UNKNOWN = "CPU", "device named, unproven", "?"
PROVE = "provision verify"


def processor(verdict: Verdict | None, asked: Processor, *, runs: bool, healthy: bool | None) -> tuple[str, str]:
    """What computes for a service, and why we say so: "CPU", "GPU", "device named, unproven", "?", or nothing.

    ``asked`` is what it was asked to compute on, ``verdict`` what its proof noted, which counts for the start of the
    unit and for the driver that it was made with. ``runs``: whether its unit runs; nothing computes for one that does
    not.
    """
    if not runs:
        return "", ""
    if asked.is_device is None:
        return UNKNOWN, asked.why
    if not asked.is_device:
        return CPU, asked.why
    return _on_device(verdict, asked) if healthy else ("", "")


def _on_device(verdict: Verdict | None, asked: Processor) -> tuple[str, str]:
    if not asked.notes_verdict:
        return UNPROVEN, asked.why
    if verdict is None:
        return UNPROVEN, f"not proved yet: {PROVE}"
    if verdict.stale:
        return UNPROVEN, f"{verdict.stale} since its proof: {PROVE}"
    return verdict.verdict, verdict.why


def judge(desired: Fleet, actual: Fleet, facts: Iterable[ContainerFact]) -> tuple[Finding, ...]:
    """What is not as it should be, container by container; nothing when all is well.

    Facts used: ``UnitState``, ``Health``, ``Closed`` and ``Proof`` of each service.
    """
    known = tuple(facts)
    units, pages, proofs = by_address(known, UnitState), by_address(known, Health), by_address(known, Proof)
    seen = _Seen(units, pages, proofs, by_address(known, Closed))
    return tuple(finding for instance in desired.instances for finding in _of_instance(instance, actual, seen))


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was seen of services, by their addresses."""

    units: Mapping[Address, UnitState]
    pages: Mapping[Address, Health]
    proofs: Mapping[Address, Proof]
    closed: Mapping[Address, Closed]


def _of_instance(wanted: Instance, actual: Fleet, seen: _Seen) -> list[Finding]:
    there = actual.instance(wanted.name)
    host = actual.hosts.get(wanted.host)
    if there is None and host is not None and wanted.name in host.moved:
        what = f"the container is {host.moved[wanted.name]}"
        return [Finding(Address.of(wanted.name), what, resolution=host.moved_hints[wanted.name])]
    if there is None:
        return [Finding(Address.of(wanted.name), "the container does not exist", resolution="Run: provision up")]
    if there.status is not Status.RUNNING:
        return [Finding(Address.of(wanted.name), f"the container is {there.status}", resolution="Run: provision up")]
    return [finding for service in wanted.services for finding in _of_service(service, seen)]


def _of_service(service: Service, seen: _Seen) -> list[Finding]:
    address, findings = service.address, []
    unit = seen.units.get(address)
    if service.unit and not (unit and unit.is_well):
        logs = f"journalctl -u {service.unit} in container {service.container} says why."
        state = unit.state if unit else UNSEEN
        findings.append(Finding(address, f"unit {service.unit} is {state}", resolution=logs))
    health = seen.pages.get(address)
    if service.health and not (health and health.is_well):
        answer = health.answer if health else UNSEEN
        findings.append(Finding(address, f"{service.health} on port {service.port} answers {answer}"))
    if address in seen.closed:
        findings.append(Finding(address, STILL_CLOSED, resolution="Run: provision up"))
    proof = seen.proofs.get(address)
    if proof is not None and proof.failure:
        findings.append(Finding(address, "its proof failed", details=proof.failure))
    return findings
