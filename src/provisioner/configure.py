"""Puts services into running containers and has each prove itself: ``site.yml`` and ``verify.yml`` through Ansible."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic

from provisioner import paths
from provisioner.artifacts import Emit, RunPlaybook
from provisioner.errors import VerificationError
from provisioner.events import ApplyComplete, ApplyErrored, ApplyProgress, ApplyStart
from provisioner.inventory import render_inventory, secrets_of
from provisioner.providers.base import Provider
from provisioner.runner import PlaybookResult, TaskEvent
from provisioner.state import Fact, Instance

PROOF_PREFIX = "verify | "
"""How the name of every task of a role's ``tasks/verify.yml`` begins."""


def configure(
    instances: Sequence[Instance], providers: Mapping[str, Provider], *, run_playbook: RunPlaybook, emit: Emit
) -> None:
    """Run every service's role on its container, engines first.

    Raises ``VerificationError`` when a role did its work and its own proof failed, ``PlaybookError`` when it did not.
    """
    if not instances:
        return
    started = monotonic()
    for one in instances:
        emit(ApplyStart(one.name, "configure"))
    result = _run("site.yml", instances, providers, run_playbook, _progress(emit))
    failed = {one.host: one for one in result.failures}
    for one in instances:
        if one.name in failed:
            emit(ApplyErrored(one.name, "configure", failed[one.name].message))
        elif result.returncode == 0:
            emit(ApplyComplete(one.name, "configure", monotonic() - started))
    if result.failures and all(_short(one).startswith(PROOF_PREFIX) for one in result.failures):
        raise VerificationError(
            "Unable to prove that the lab works: it is left as it is",
            details="\n".join(f"{one.host}/{one.role}: {one.message}" for one in result.failures),
            resolution=f"The whole output is in {result.log}.",
        )
    result.raise_for_failure(f"configure {', '.join(sorted(failed) or [one.name for one in instances])}")


def prove(
    instances: Sequence[Instance], providers: Mapping[str, Provider], *, run_playbook: RunPlaybook, emit: Emit
) -> tuple[Fact, ...]:
    """A fact ``proof`` for every service: True, or why it is not proved. Changes nothing.

    A service counts as proved only when its proof ran to its end: a container that another task failed on, or one that
    no task of the proof reached, is not.
    """
    if not any(one.services for one in instances):
        return ()
    reached: set[str] = set()
    told = _progress(emit)

    def on_task(event: TaskEvent) -> None:
        told(event)
        if event.status in {"ok", "changed"} and _short(event).startswith(PROOF_PREFIX):
            reached.add(f"{event.host}/{event.role}")

    result = _run("verify.yml", instances, providers, run_playbook, on_task)
    _refuse_silence(result)
    return tuple(
        Fact(service.address, "proof", _proof(service.address, result, reached))
        for one in instances
        for service in one.services
    )


def _proof(address: str, result: PlaybookResult, reached: set[str]) -> bool | str:
    container = address.partition("/")[0]
    failures = [one for one in result.failures if one.host == container]
    own = [one.message for one in failures if f"{one.host}/{one.role}" == address]
    if own:
        return own[0]
    if failures:
        return f"it was not proved, because of {failures[0].role or 'its container'}: {failures[0].message}"
    return True if address in reached else "no task of its proof was run"


def _refuse_silence(result: PlaybookResult) -> None:
    if result.returncode != 0 and not result.failures:
        result.raise_for_failure("run the proofs")


def _run(
    playbook: str,
    instances: Sequence[Instance],
    providers: Mapping[str, Provider],
    run_playbook: RunPlaybook,
    on_task: Callable[[TaskEvent], None],
) -> PlaybookResult:
    connections = {one.name: providers[one.host].connection_variables(one.name) for one in instances}
    inventory = render_inventory(instances, connections, paths.inventory_templates())
    secrets = secrets_of([service.variables for one in instances for service in one.services])
    return run_playbook(playbook, inventory, on_task=on_task, secrets=tuple(secrets.values()))


def _progress(emit: Emit) -> Callable[[TaskEvent], None]:
    def on_task(event: TaskEvent) -> None:
        target = f"{event.host}/{event.role}" if event.role else event.host
        emit(ApplyProgress(target, _short(event) if event.status == "start" else ""))

    return on_task


def _short(event: TaskEvent) -> str:
    return event.task.removeprefix(f"{event.role} : ")
