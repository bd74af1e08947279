"""Keeping people out of a service whose container may go back to an earlier state: what they wrote would be lost."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from time import monotonic

from provisioner.values.errors import ProviderError, ProvisionError
from provisioner.values.events import ApplyComplete, ApplyErrored, ApplyStart, Diagnostic
from provisioner.values.facts import Closed, ContainerFact, of_kind
from provisioner.values.plain_data import Foreign
from provisioner.values.state import Instance, Service
from provisioner.workflow.effects import Effects
from provisioner.workflow.surveying import closable

NOT_LOADED = 5
"""So systemctl ends where there is no such unit: an earlier version made the container."""
MARGIN_S = 60.0
"""So long systemd may take beside what the container's services drain: signing in, then running answers."""


def close(one: Instance, facts: Collection[ContainerFact], effects: Effects) -> None:
    """Have people see a page in the place of the container's services that they write into, and wait for answers.

    One that cannot be closed is told and left as it is: it is no reason to leave a fault unmended.
    """
    for service in closable(one, facts):
        _told(one, service, "close", effects)


def open_again(instances: Iterable[Instance], facts: Collection[ContainerFact], effects: Effects) -> None:
    """Let people in again, also where an earlier run had closed a service; nothing where it is open."""
    for one in instances:
        for service in closable(one, facts):
            _told(one, service, "open", effects)


def without_closed(facts: Iterable[ContainerFact]) -> tuple[ContainerFact, ...]:
    """What counts while a run itself keeps people out."""
    return tuple(fact for fact in facts if not isinstance(fact, Closed))


def is_left_closed(one: Instance, facts: Iterable[ContainerFact]) -> bool:
    """Whether a run that has not come to its end keeps people out of a service of it."""
    return any(fact.address.container == one.name for fact in of_kind(facts, Closed))


def _told(one: Instance, service: Service, action: str, effects: Effects) -> None:
    verb = {"close": "start", "open": "stop"}[action]
    target, began = str(service.address), monotonic()
    effects.emit(ApplyStart(target, action))
    try:
        ran = effects.providers[one.host].execute(
            one.name, ["systemctl", verb, "--", service.closed_by], timeout_s=2 * one.stop_s + MARGIN_S
        )
        if ran.returncode and (action, ran.returncode) != ("open", NOT_LOADED):
            words = Foreign.of_output(ran.stderr)
            raise ProviderError(f"systemctl {verb} {service.closed_by} ended with {ran.returncode}", details=words)
    except ProvisionError as error:
        effects.emit(ApplyErrored(target, action, error.message))
        effects.emit(_warning(service, action, error))
        return
    effects.emit(ApplyComplete(target, action, monotonic() - began))


def _warning(service: Service, action: str, error: ProvisionError) -> Diagnostic:
    details = "\n".join(filter(None, (error.message, error.details)))
    resolution = f"See why with: provision exec {service.container} -- journalctl -u {service.closed_by}"
    if action == "close":
        message = f"Unable to keep people out of {service.address}: what they write now is lost if this run goes back"
    else:
        message = f"Unable to let people into {service.address} again: run up, or start its container anew"
    return Diagnostic("warning", message, details=details, resolution=resolution)
