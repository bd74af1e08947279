"""The verbs as straight lists of calls: observe, plan, confirm, apply, configure, prove. Effects are arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from provisioner import paths
from provisioner.apply import apply_instances
from provisioner.artifacts import RunPlaybook, ensure_artifacts
from provisioner.configure import configure, prove
from provisioner.errors import PreflightError, VerificationError
from provisioner.events import Check, Event, Orphan, PlannedChange
from provisioner.lab import Lab
from provisioner.plan import COMPARED, Plan, make_destroy_plan, make_plan, make_stop_plan
from provisioner.probe import probe
from provisioner.providers.base import Provider
from provisioner.runner import PlaybookResult
from provisioner.state import (
    Artifact,
    ContainerStatus,
    Fact,
    Finding,
    Fleet,
    Instance,
    InstanceKind,
    ServiceStatus,
    Status,
)
from provisioner.verify import ACTIVE, HTTP_OK, judge


class Confirm(Protocol):
    """Shows a plan and asks the user whether it may be carried out; an empty one is shown and needs no answer."""

    def __call__(self, plan: Plan, /) -> bool:
        """True to go on."""


@dataclass(frozen=True, slots=True)
class Effects:
    """Everything through which a workflow touches the world; ``providers`` maps the file's hosts to their drivers."""

    providers: Mapping[str, Provider]
    run_playbook: RunPlaybook
    emit: Callable[[Event], None]
    confirm: Confirm


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a verb did: the plan, whether it was carried out, and what was found afterwards."""

    plan: Plan
    applied: bool
    findings: tuple[Finding, ...] = ()


def observe(lab: Lab, effects: Effects) -> Fleet:
    """The lab as it is: every host asked at once; raises ``UnavailableError`` when one does not answer."""
    providers = effects.providers
    with ThreadPoolExecutor(max(1, len(providers))) as pool:
        list(pool.map(lambda provider: provider.check_available(), providers.values()))
        seen = list(pool.map(lambda provider: provider.observe(lab.name), providers.values()))
    instances = sorted((one for fleet in seen for one in fleet.instances), key=lambda one: (one.host, one.name))
    return Fleet(
        lab.name, tuple(instances), hosts={name: state for fleet in seen for name, state in fleet.hosts.items()}
    )


def plan(lab: Lab, effects: Effects, targets: Sequence[str] = ()) -> Plan:
    """What ``up`` would do; nothing is touched."""
    return _planned(lab, effects, targets)[0]


def up(lab: Lab, effects: Effects, targets: Sequence[str] = ()) -> Outcome:
    """Make the lab what the file says, and prove it; raises ``VerificationError`` when the proof fails."""
    made, desired = _planned(lab, effects, targets)
    _refuse_changes(made)
    if not effects.confirm(made):
        return Outcome(made, applied=False)
    _delete(made, effects)
    built = [one.after for one in made.of("build") if isinstance(one.after, Artifact)]
    ensure_artifacts(built, effects.providers, lab.name, run_playbook=effects.run_playbook, emit=effects.emit)
    apply_instances(made.of("create", "start"), effects.providers, effects.emit)
    wanted = _wanted(desired, targets)
    _wait_until_ready(wanted, effects)
    configure(wanted, effects.providers, run_playbook=effects.run_playbook, emit=effects.emit)
    facts = probe(wanted, effects.providers)
    findings = judge(Fleet(lab.name, wanted), observe(lab, effects), facts)
    _announce_checks(wanted, findings, effects)
    if findings:
        raise VerificationError(
            "Unable to prove that the lab works: it is left as it is",
            details="\n".join(f"{one.subject}: {one.message}" for one in findings),
            resolution="Look at the container's journal, then run provision up again.",
        )
    return Outcome(made, applied=True)


def verify(lab: Lab, effects: Effects, targets: Sequence[str] = ()) -> tuple[Finding, ...]:
    """Prove every service again by its role's own verification; changes and stops nothing."""
    actual = observe(lab, effects)
    desired = lab.fleet(_architectures(actual))
    wanted = _wanted(desired, targets)
    running = tuple(one for one in wanted if _is_running(one, actual))
    facts = (*probe(running, effects.providers), *_prove(running, effects))
    findings = judge(Fleet(lab.name, wanted), actual, facts)
    _announce_checks(wanted, findings, effects)
    return findings


def status(lab: Lab, effects: Effects, targets: Sequence[str] = ()) -> tuple[ContainerStatus, ...]:
    """Every container of the file and every orphan as it is now."""
    actual = observe(lab, effects)
    desired = lab.fleet(_architectures(actual))
    wanted = _wanted(desired, targets)
    facts = probe([one for one in wanted if _is_running(one, actual)], effects.providers)
    seen = {(fact.subject, fact.name): fact for fact in facts}
    names = {one.name for one in desired.instances}
    orphans = [one for one in actual.instances if one.name not in names and one.kind is InstanceKind.SERVING]
    return (
        *(_container_status(one, actual.instance(one.name), seen) for one in wanted),
        *(ContainerStatus(one.name, one.host, one.status, one.address, orphan=True) for one in orphans if not targets),
    )


def down(lab: Lab, effects: Effects, targets: Sequence[str] = ()) -> Outcome:
    """Stop the lab's containers; their data is kept."""
    made = make_stop_plan(observe(lab, effects), targets=targets)
    _announce(made, effects)
    if not effects.confirm(made):
        return Outcome(made, applied=False)
    apply_instances(made.changes, effects.providers, effects.emit)
    return Outcome(made, applied=True)


def destroy(lab: Lab, effects: Effects, targets: Sequence[str] = ()) -> Outcome:
    """Delete the lab's containers, orphans too, and the artifacts that nothing uses any more."""
    made = make_destroy_plan(observe(lab, effects), targets=targets)
    _announce(made, effects)
    if not effects.confirm(made):
        return Outcome(made, applied=False)
    _delete(made, effects)
    return Outcome(made, applied=True)


def prepare_host(variables: Mapping[str, object], run_playbook: Callable[..., PlaybookResult]) -> PlaybookResult:
    """Make this machine able to hold containers: ``playbooks/host.yml`` on localhost with the role's ``variables``."""
    inventory = (paths.inventory_templates() / "localhost.yml").read_text(encoding="utf-8")
    return run_playbook("host.yml", inventory, variables=variables)


def _planned(lab: Lab, effects: Effects, targets: Sequence[str]) -> tuple[Plan, Fleet]:
    lab.check_targets(targets)
    actual = observe(lab, effects)
    desired = lab.fleet(_architectures(actual))
    made = make_plan(desired, actual, targets=targets)
    _announce(made, effects)
    return made, desired


def _announce(made: Plan, effects: Effects) -> None:
    for change in made.changes:
        effects.emit(PlannedChange(change.target, change.action, change.reason, change.attributes()))
    for orphan in made.orphans:
        effects.emit(Orphan(orphan.name, orphan.host))


def _refuse_changes(made: Plan) -> None:
    changed = made.of("update", "replace")
    if changed:
        raise PreflightError(
            f"Unable to change container {', '.join(one.target for one in changed)}",
            details="; ".join(f"{one.target}: {one.reason}" for one in changed),
            resolution="This version creates and deletes: take the change back, or destroy the container and run up.",
        )


def _delete(made: Plan, effects: Effects) -> None:
    """Delete what the plan deletes, then the volumes that only it used: a leftover builder's is half made."""
    doomed = made.of("delete")
    apply_instances(doomed, effects.providers, effects.emit)
    for one in [change.before for change in doomed if isinstance(change.before, Instance)]:
        for device in one.devices:
            if device.kind == "volume":
                effects.providers[one.host].delete_volume(device.properties["volume"])


def _wait_until_ready(wanted: Sequence[Instance], effects: Effects) -> None:
    """Also those that ran before: their host may have started them a moment ago."""
    with ThreadPoolExecutor(max(1, len(wanted))) as pool:
        list(pool.map(lambda one: effects.providers[one.host].wait_until_ready(one), wanted))


def _wanted(desired: Fleet, targets: Sequence[str]) -> tuple[Instance, ...]:
    return tuple(one for one in desired.instances if not targets or one.name in targets)


def _architectures(actual: Fleet) -> dict[str, str]:
    return {name: host.architecture for name, host in actual.hosts.items()}


def _is_running(wanted: Instance, actual: Fleet) -> bool:
    there = actual.instance(wanted.name)
    return there is not None and there.status is Status.RUNNING


def _prove(running: tuple[Instance, ...], effects: Effects) -> tuple[Fact, ...]:
    return prove(running, effects.providers, run_playbook=effects.run_playbook, emit=effects.emit)


def _announce_checks(wanted: Sequence[Instance], findings: Sequence[Finding], effects: Effects) -> None:
    failed = {finding.subject: finding for finding in findings}
    for one in wanted:
        for service in one.services:
            finding = failed.get(service.address) or failed.get(one.name)
            message = finding.message if finding else "works"
            effects.emit(Check(service.address, service.role, finding is None, message))


def _container_status(
    wanted: Instance, there: Instance | None, seen: Mapping[tuple[str, str], Fact]
) -> ContainerStatus:
    if there is None:
        return ContainerStatus(wanted.name, wanted.host)
    services = []
    for one in wanted.services:
        unit, health = seen.get((one.address, "unit")), seen.get((one.address, "health"))
        services.append(
            ServiceStatus(
                one.role,
                unit=str(unit.value) if unit else "unknown",
                healthy=None if health is None else health.value == HTTP_OK and (not unit or unit.value == ACTIVE),
                port=one.port,
                processor="CPU",
            )
        )
    drift = tuple(name for name in COMPARED if getattr(wanted, name) != getattr(there, name))
    return ContainerStatus(wanted.name, there.host, there.status, there.address, tuple(services), drift)
