"""Puts services into running containers and has each prove itself: ``site.yml`` and ``verify.yml`` through Ansible."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

from provisioner.hosts.base import Provider
from provisioner.inside.module_server.handing import Served, stop_command
from provisioner.reconcile.artifacts import Emit, RunPlaybook
from provisioner.reconcile.evidence import last_words
from provisioner.reconcile.inventory import render_inventory
from provisioner.reconcile.runner import GO_ON, HIDDEN, NO_REASON, PlaybookResult, TaskEvent
from provisioner.values import paths
from provisioner.values.address import Address
from provisioner.values.errors import PlaybookError, ProviderError, ProvisionError, VerificationError
from provisioner.values.events import ApplyComplete, ApplyErrored, ApplyProgress, ApplyStart, Diagnostic
from provisioner.values.facts import DeviceMemory, Proof, ProofStep
from provisioner.values.state import Instance, Status, secrets_of

PROOF = re.compile(r"(verify(_[a-z]+)*|trial) \| ")
"""How the name of every task of a role's ``tasks/verify.yml``, and of the files that it takes in, begins; and of one
that tries a service before it takes the place of another."""
DEVICE = re.compile(r"device(_[a-z]+)* \| ")
"""How those begin by which an engine is held against its device, before it is started as well as by its proof."""

DEVICE_MEMORY = "device_memory"
"""The bytes of its card that a service takes, as modules of ours tell the controller (``provision_facts``)."""
STARTED = re.compile(r"(service|verify(_[a-z]+)*) \| |Restart ")
"""How those begin by which a service is started, or waited for."""
DONE = frozenset({"ok", "changed", "skipped"})
"""What Ansible says of a task that it is through with on a container."""
ENDED = {"ok": True, "changed": True, "failed": False, "unreachable": False}
"""What Ansible says of a task that was run, and whether it went well."""

STOP_S = 30.0
"""So long a container has to stop its module server."""

Connections = Mapping[str, Mapping[str, str]]
"""By containers, the variables by which Ansible reaches them."""


@dataclass(frozen=True, slots=True)
class Configured:
    """How the roles ended: what kept some from it, and on which containers something was changed."""

    changed: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    facts: tuple[DeviceMemory | ProofStep, ...] = ()
    """What proofs asked and measured."""
    error: ProvisionError | None = None
    """``VerificationError`` when roles did their work and their own proof failed, ``PlaybookError`` when not."""


def configure(
    instances: Sequence[Instance],
    providers: Mapping[str, Provider],
    *,
    run_playbook: RunPlaybook,
    emit: Emit,
    new: Collection[str] = (),
) -> Configured:
    """Run every service's role on its container, engines first; a failure is in what is given back.

    ``new``: names of containers in which nobody is served yet, so that they need not wait for each other.
    """
    if not instances:
        return Configured()
    started = monotonic()
    for one in instances:
        emit(ApplyStart(one.name, "configure"))
    measured: list[DeviceMemory | ProofStep] = []
    try:
        reached = _connections(instances, providers)
    except ProviderError as error:  # what was changed before it may have to go back, as when a role fails
        for one in instances:
            emit(ApplyErrored(one.name, "configure", error.message))
        return Configured(failed=frozenset(one.name for one in instances), error=error)
    course = _Course()
    told = _progress(emit, measured)

    def on_task(event: TaskEvent) -> None:
        told(event)
        course.note(event)

    ran_site = _run("site.yml", instances, reached, run_playbook, on_task, new=new)
    _stop_servers(ran_site.served, instances, providers, emit)
    result = _told_of_stopped(ran_site, instances, providers).without(GO_ON)
    failed = course.not_done(instances, result)
    for one in instances:
        if one.name in failed:
            emit(ApplyErrored(one.name, "configure", failed[one.name]))
        else:
            emit(ApplyComplete(one.name, "configure", monotonic() - started))
    changed = frozenset(name for name, count in result.changed.items() if count)
    kept_from = _error(result, failed)
    if kept_from is not None:
        words = [kept_from.details, *_words_of_services(instances, providers, result)]
        kept_from.details = "\n".join(filter(None, words))
    return Configured(changed, frozenset(failed), tuple(measured), kept_from)


@dataclass(slots=True)
class _Course:
    """The progress of each container, by what tasks said: addresses of roles and services, names of containers."""

    ran: set[str] = field(default_factory=set)
    made: set[str] = field(default_factory=set)
    """Those that are to be proved in a later play."""
    proved: set[str] = field(default_factory=set)

    def note(self, event: TaskEvent) -> None:
        """Take up what a task said."""
        address = f"{event.host}/{event.role}"
        if event.status in DONE:
            self.ran.add(address)
        if event.task == GO_ON:
            self.made.add(event.host)
        if event.status in {"ok", "changed"} and PROOF.match(_short(event)):
            self.proved.add(address)

    def not_done(self, instances: Sequence[Instance], result: PlaybookResult) -> dict[str, str]:
        """Return why containers are not configured, by their names: only what ran and was proved to its end is.

        A play that all of its containers fail in is Ansible's last one, so another one's failure may be the reason.
        """
        own = {failure.host: failure.message for failure in result.failures}
        because = f" when {', '.join(sorted(own))} failed" if own else ""
        not_done: dict[str, str] = {}
        for instance in instances:
            missing = [role.role for role in instance.roles if role.address not in self.ran]
            unproved = [one.role for one in instance.services if one.address not in self.proved]
            if instance.name in own:
                not_done[instance.name] = own[instance.name]
            elif not result.finished:
                not_done[instance.name] = "not configured to its end: Ansible was ended"
            elif missing:
                not_done[instance.name] = f"not configured: Ansible stopped{because}, before {', '.join(missing)}"
            elif instance.name in self.made and unproved:
                not_done[instance.name] = f"not proved: Ansible stopped{because}, before {', '.join(unproved)}"
        return not_done


def _error(result: PlaybookResult, not_done: Mapping[str, str]) -> ProvisionError | None:
    hosts = {failure.host for failure in result.failures}
    unreached = [f"{name}: {why}" for name, why in sorted(not_done.items()) if name not in hosts]
    of_proofs = [PROOF.match(_short(failure)) or DEVICE.match(_short(failure)) for failure in result.failures]
    if of_proofs and all(of_proofs) and result.finished:
        words = [f"{failure.host}/{failure.role}: {failure.message}" for failure in result.failures]
        return VerificationError(
            "Unable to prove that the lab works",
            details="\n".join([*words, *unreached]),
            resolution=f"The whole output is in {result.log}.",
        )
    try:
        result.raise_for_failure(f"configure {', '.join(sorted(not_done))}")
    except PlaybookError as error:
        error.details = "\n".join([error.details, *unreached])
        return error
    if unreached:  # it ended well, and without having done what it was there for
        return PlaybookError(f"Unable to configure {', '.join(sorted(not_done))}", details="\n".join(unreached))
    return None


def _words_of_services(
    instances: Sequence[Instance], providers: Mapping[str, Provider], result: PlaybookResult
) -> Iterator[str]:
    """Why services did not start, by their own last words."""
    failed = {f"{failure.host}/{failure.role}": failure for failure in result.failures}
    for instance in instances:
        for service in instance.services:
            failure = failed.get(service.address)
            if failure is not None and STARTED.match(_short(failure)):
                was_waited_for = failure.message.startswith(f"Unable to use {service.unit}")
                yield last_words(service, providers[instance.host], although_it_runs=was_waited_for)


def prove(
    instances: Sequence[Instance], providers: Mapping[str, Provider], *, run_playbook: RunPlaybook, emit: Emit
) -> tuple[Proof | DeviceMemory | ProofStep, ...]:
    """A ``Proof`` for every service, and what the proofs asked and measured. Changes nothing.

    A service counts as proved only when its proof ran to its end: a container that another task failed on, or one that
    no task of the proof reached, is not.
    """
    if not any(one.services for one in instances):
        return ()
    reached: set[str] = set()
    measured: list[DeviceMemory | ProofStep] = []
    told = _progress(emit, measured)

    def on_task(event: TaskEvent) -> None:
        told(event)
        if event.status in {"ok", "changed"} and PROOF.match(_short(event)):
            reached.add(f"{event.host}/{event.role}")

    proved = _run("verify.yml", instances, _connections(instances, providers), run_playbook, on_task)
    _stop_servers(proved.served, instances, providers, emit)
    result = _told_of_stopped(proved, instances, providers)
    _refuse_silence(result)
    addresses = [service.address for one in instances for service in one.services]
    return (*(Proof(address, _failure(address, result, reached)) for address in addresses), *measured)


def _failure(address: Address, result: PlaybookResult, reached: set[str]) -> str:
    """Why the service is not proved; empty where it is."""
    failures = [failure for failure in result.failures if failure.host == address.container]
    own = [failure.message for failure in failures if Address.of(failure.host, failure.role) == address]
    if own:
        return own[0]
    if failures:
        return f"it was not proved, because of {failures[0].role or 'its container'}: {failures[0].message}"
    return "" if address in reached else "no task of its proof was run"


def _refuse_silence(result: PlaybookResult) -> None:
    if not result.finished or (result.returncode != 0 and not result.failures):
        result.raise_for_failure("run the proofs")


def _connections(instances: Sequence[Instance], providers: Mapping[str, Provider]) -> Connections:
    return {one.name: providers[one.host].connection_variables(one.name) for one in instances}


def _run(
    playbook: str,
    instances: Sequence[Instance],
    connections: Connections,
    run_playbook: RunPlaybook,
    on_task: Callable[[TaskEvent], None],
    *,
    new: Collection[str] = (),
) -> PlaybookResult:
    inventory = render_inventory(instances, connections, paths.inventory_templates(), new)
    secrets = secrets_of([service.variables for one in instances for service in one.services])
    return run_playbook(playbook, inventory, on_task=on_task, secrets=tuple(secrets.values()))


def _stop_servers(served: Served, instances: Sequence[Instance], providers: Mapping[str, Provider], emit: Emit) -> None:
    """Stop the containers' module servers, and tell what they ran; one that cannot be stopped ends by itself soon."""
    hosts = {instance.name: instance.host for instance in instances}
    for container, python in served.containers.items():
        if container not in hosts:
            continue
        try:
            providers[hosts[container]].execute(container, stop_command(python), timeout_s=STOP_S)
        except ProviderError as error:
            emit(Diagnostic("detail", f"The module server of {container} was left to end by itself: {error.message}"))
    if served.served or served.usual:
        emit(Diagnostic("detail", str(served)))


def _told_of_stopped(
    result: PlaybookResult, instances: Sequence[Instance], providers: Mapping[str, Provider]
) -> PlaybookResult:
    """The same, where a task said nothing because its container stopped meanwhile with that as the reason."""
    hosts = {one.name: one.host for one in instances}
    failures = []
    for failure in result.failures:
        if failure.message in (HIDDEN, NO_REASON) and failure.host in hosts:
            why = _why_silent(providers[hosts[failure.host]], failure.host)
            failure = replace(failure, message=why or failure.message)  # noqa: PLW2901 - the same with another message
        failures.append(failure)
    return replace(result, failures=tuple(failures))


def _why_silent(provider: Provider, container: str) -> str:
    try:
        there = provider.read(container)
    except ProviderError as error:
        return f"its container cannot be looked at: {error.message}"
    if there is None:
        return "its container is not there any more, so nothing is known of what the task said"
    if there.status is not Status.RUNNING:
        return f"its container is {there.status} meanwhile, so nothing is known of what the task said"
    return ""


def _progress(emit: Emit, measured: list[DeviceMemory | ProofStep]) -> Callable[[TaskEvent], None]:
    def on_task(event: TaskEvent) -> None:
        target = Address.of(event.host, event.role)
        if DEVICE_MEMORY in event.facts:
            measured.append(DeviceMemory(target, event.facts[DEVICE_MEMORY]))
        if event.status in ENDED and PROOF.match(_short(event)):
            measured.append(_step(target, event))
        emit(ApplyProgress(target, _short(event) if event.status == "start" else ""))

    return on_task


def _step(target: Address, event: TaskEvent) -> ProofStep:
    asked = _short(event).partition(" | ")[2]
    return ProofStep(target, asked, ENDED[event.status], event.message or event.came, event.elapsed_s)


def _short(event: TaskEvent) -> str:
    return event.task.removeprefix(f"{event.role} : ")
