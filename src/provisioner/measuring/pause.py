"""Pauses of an engine that others use: it is stopped for a while, so that it can be measured in its container.

Who asks meanwhile waits in the switch before it, is answered between two measurements, and whatever happens, the engine
serves again afterwards.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic, sleep
from types import ModuleType
from typing import Any

from provisioner.hosts.base import Provider
from provisioner.inside import cpu_waits, trial_unit
from provisioner.inside.bundle import program_of
from provisioner.lab.opening import Lab
from provisioner.lab.resolved import ResolvedLab
from provisioner.reconcile.effects import Effects
from provisioner.reconcile.gather import COMMAND, damaged, failures_of
from provisioner.reconcile.observe import Survey, is_running, settled, survey
from provisioner.services.base import ResolvedService
from provisioner.values.errors import InputError, PreflightError, ProviderError
from provisioner.values.events import ApplyProgress
from provisioner.values.plain_data import Foreign, answer_value
from provisioner.values.state import Instance

# An engine that is measured: where it runs, and by what it is stopped and started.

WITHOUT = (
    "/switch/control.py",
    "switch-",
    "OnSuccess=",
    "OnFailure=",
    "StartLimit",
    "Restart",
    "ExecStop=",
    "TimeoutStopSec=",
    "WantedBy=",
)
"""Lines of an engine's unit that lead requests to it, start it again, or have its answers finished."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A service of the file that computes answers, with its container."""

    service: ResolvedService
    instance: Instance

    @property
    def container(self) -> str:
        """Where it runs."""
        return self.service.container

    @property
    def unit(self) -> str:
        """Its unit."""
        return self.service.page.unit or ""

    @property
    def switch(self) -> str:
        """The socket by which the switch before it is asked; empty where there is none."""
        return switch_socket(self.service)


def switch_socket(service: ResolvedService) -> str:
    """The socket by which the switch before a service is asked; empty where there is none."""
    before, unit = service.behind, service.page.unit or ""
    return f"/run/{before}-{unit.removesuffix('.service')}/control.sock" if before else ""


# The pause, and what is asked in the container meanwhile.

SPARE_S = 120.0
POLL_S = 0.5
LONGEST_SERVING_S = 600.0
"""So long those who waited are served before the next measurement."""
CONTROL = "/usr/local/lib/switch/control.py"
"""As role ``switch`` installs it; it says how many requests wait."""

Check = Callable[[Any], dict[str, Any]]
"""Returns an answer as it is, or raises ``DamagedAnswerError``."""


def engine_named(lab: ResolvedLab, name: str, verb: str) -> ResolvedService:
    """The engine of that name, CONTAINER or CONTAINER/SERVICE; ``InputError`` where it names none, or several.

    ``verb``: what is to be done with it.
    """
    found = [service for address, service in lab.services.items() if name in (address, service.container)]
    engines = [one for one in found if one.page.stage == "engine"] or found
    if len(engines) != 1:
        raise InputError(
            f"Unable to {verb} {name}: it names {len(engines)} services of the file, and one is wanted",
            resolution="Name it as CONTAINER/SERVICE.",
        )
    return engines[0]


def check_alone(service: ResolvedService, verb: str) -> None:
    """Raise ``InputError`` where something else starts and stops it."""
    if service.idle_s or service.share:
        raise InputError(
            f"Unable to {verb} {service.address}: something else starts and stops it meanwhile, "
            f"{'as it ends when nobody asks it' if service.idle_s else 'as it takes turns on its card'}",
            resolution=f"Leave out {'idle' if service.idle_s else 'its group in share'} for as long as you {verb} it.",
        )


def look_at(lab: Lab, effects: Effects, service: ResolvedService, verb: str) -> tuple[Engine, Survey]:
    """The engine in its container, and what is seen of that; raises ``PreflightError`` where it does not run."""
    seen = survey(lab, effects, [service.container], needs_cards=False)
    (instance,) = seen.wanted
    if seen.actual.instance(service.container) is None:
        why, hint = seen.actual.absence(service.container, lab.loaded.path)
        raise PreflightError(f"Unable to {verb} {service.address}", details=f"Its container: {why}", resolution=hint)
    if not is_running(instance, seen.actual):
        raise PreflightError(
            f"Unable to {verb} {service.address}: its container does not run",
            resolution=f"Run: provision up {service.container}",
        )
    (desired,) = (one for one in instance.services if one.address == service.address)
    return Engine(service, replace(instance, services=(desired,))), seen


def check_queue(engine: Engine, taken_s: float, what: str, verb: str, kept: str) -> None:
    """Raise ``PreflightError`` where ``what`` takes longer than requests wait; ``kept``: what is left of the run."""
    queue_s = engine.service.queue_s
    if taken_s < queue_s:
        return
    raise PreflightError(
        f"Unable to try {what} of {engine.service.address} without refusing requests: it takes "
        f"{taken_s:.0f} s, and they wait for {queue_s:.0f} s",
        details=kept,
        resolution=f"Write a longer queue for it, or run this when nobody asks it: provision {verb} --refuse",
    )


@contextmanager
def serving_again(engine: Engine, effects: Effects) -> Iterator[None]:
    """Whatever happens, the engine is started again, and waited for."""
    try:
        yield
    finally:
        _run(engine, "start", effects)
        settled([engine.instance], effects)


def pause(engine: Engine, effects: Effects, longest_s: float) -> None:
    """Stop it, and have requests wait meanwhile, which they do for no other stop; its next start ends that."""
    if engine.switch:
        _switch(engine, effects, "hold", "--within", f"{longest_s:.0f}")
    _run(engine, "stop", effects)


def serve_who_waits(engine: Engine, effects: Effects) -> None:
    """Let the engine answer those who wait in its switch, before it is stopped again; nothing where nobody waits."""
    if not _waiting(engine, effects):
        return
    say(engine, "answering requests that wait", effects)
    _run(engine, "start", effects)
    deadline = monotonic() + LONGEST_SERVING_S
    while _waiting(engine, effects) and monotonic() < deadline:
        sleep(POLL_S)


def say(engine: Engine, text: str, effects: Effects, *, goes_on: bool = False) -> None:
    """Tell whoever looks; ``goes_on``: more of what was said last."""
    effects.emit(ApplyProgress(engine.container, text, goes_on=goes_on))


def asked_there(
    engine: Engine, program: ModuleType, question: Mapping[str, Any], check: Check, effects: Effects, *, within_s: float
) -> dict[str, Any]:
    """Return what that program says in the engine's container.

    Raise ``ProviderError`` where it cannot be asked, or its answer does not pass ``check`` (see ``inside.answers``).
    """
    text = program_of(program, cpu_waits, trial_unit)
    looked = _provider(engine, effects).look(
        COMMAND,
        {engine.container: json.dumps(question).encode()},
        shared=zlib.compress(text.encode()),
        timeout_s=within_s,
    )
    for error in failures_of(looked).values():
        raise error
    (ran,) = looked.executions.values()
    said = Foreign.of_output(ran.stderr)
    if ran.returncode:
        raise ProviderError(
            f"Unable to measure in container {engine.container}: python3 ended with {ran.returncode}",
            details=said,
            resolution=f"Look at it with: provision exec {engine.container}",
        )
    try:
        return check(answer_value(ran.stdout))
    except ValueError as error:
        raise damaged(engine.container, str(error)) from error


def _waiting(engine: Engine, effects: Effects) -> int:
    """How many requests wait in its switch; raises ``ProviderError`` where that does not say it."""
    if not engine.switch:
        return 0
    try:
        return int(answer_value(_switch(engine, effects, "state"))["waiting"])
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(engine.container, f"the switch before {engine.service.address}: {error}") from error


def _switch(engine: Engine, effects: Effects, *words: str) -> bytes:
    """What its switch answers; raises ``ProviderError`` where it does not."""
    command = ["python3", "-IS", CONTROL, "--socket", engine.switch, *words]
    ran = _provider(engine, effects).execute(engine.container, command, timeout_s=SPARE_S)
    if ran.returncode:
        raise ProviderError(
            f"Unable to have the switch before {engine.service.address} do {words[0]!r}",
            details=Foreign.of_output(ran.stderr),
            resolution=f"Run: provision up {engine.container}",
        )
    return ran.stdout


def _run(engine: Engine, verb: str, effects: Effects) -> None:
    """Start or stop its unit; stopping waits for running answers."""
    timeout_s = 2 * engine.instance.stop_s + SPARE_S
    ran = _provider(engine, effects).execute(
        engine.container, ["systemctl", verb, "--", engine.unit], timeout_s=timeout_s
    )
    if ran.returncode:
        words = Foreign.of_output(ran.stderr)
        raise ProviderError(f"Unable to {verb} {engine.service.address}", details=words)


def _provider(engine: Engine, effects: Effects) -> Provider:
    return effects.providers[engine.instance.host]
