"""``judge``: findings from what was seen of a lab's services. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from provisioner.services.base import Processor
from provisioner.state import ACTIVE, Fact, Finding, Fleet, Instance, Service, Status, is_well

UNSEEN = "not known: nobody looked"
"""What was not looked at is never fine."""
CPU, UNPROVEN, UNKNOWN = "CPU", "device named, unproven", "?"
PROVE = "provision verify"


def processor(
    verdict: Mapping[str, str] | None, asked: Processor, *, runs: bool, healthy: bool | None
) -> tuple[str, str]:
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


def _on_device(verdict: Mapping[str, str] | None, asked: Processor) -> tuple[str, str]:
    if not asked.notes_verdict:
        return UNPROVEN, asked.why
    if verdict is None:
        return UNPROVEN, f"not proved yet: {PROVE}"
    if verdict["stale"]:
        return UNPROVEN, f"{verdict['stale']} since its proof: {PROVE}"
    return verdict["verdict"], verdict["why"]


def judge(desired: Fleet, actual: Fleet, facts: Iterable[Fact]) -> tuple[Finding, ...]:
    """What is not as it should be, container by container; nothing when all is well.

    Facts used: ``unit`` (systemd's ActiveState), ``health`` (an HTTP status, busy, or the words of the failure) and
    ``proof`` (True, or the words of the role's own verification that failed), each of a service's address.
    """
    seen = {(fact.subject, fact.name): fact.value for fact in facts}
    return tuple(finding for one in desired.instances for finding in _of_instance(one, actual, seen))


def _of_instance(wanted: Instance, actual: Fleet, seen: dict[tuple[str, str], object]) -> list[Finding]:
    there = actual.instance(wanted.name)
    host = actual.hosts.get(wanted.host)
    if there is None and host is not None and wanted.name in host.moved:
        what = f"the container is {host.moved[wanted.name]}"
        return [Finding(wanted.name, what, resolution=host.moved_hints[wanted.name])]
    if there is None:
        return [Finding(wanted.name, "the container does not exist", resolution="Run: provision up")]
    if there.status is not Status.RUNNING:
        return [Finding(wanted.name, f"the container is {there.status}", resolution="Run: provision up")]
    return [finding for service in wanted.services for finding in _of_service(service, seen)]


def _of_service(service: Service, seen: dict[tuple[str, str], object]) -> list[Finding]:
    findings = []
    unit = seen.get((service.address, "unit"))
    if service.unit and unit != ACTIVE:
        logs = f"journalctl -u {service.unit} in container {service.container} says why."
        findings.append(Finding(service.address, f"unit {service.unit} is {unit or UNSEEN}", resolution=logs))
    health = seen.get((service.address, "health"))
    if service.health and not is_well(health):
        findings.append(Finding(service.address, f"{service.health} on port {service.port} answers {health or UNSEEN}"))
    proof = seen.get((service.address, "proof"), True)
    if proof is not True:
        findings.append(Finding(service.address, "its proof failed", details=str(proof)))
    return findings
