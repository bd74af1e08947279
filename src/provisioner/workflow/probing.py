"""The verb ``probe``: the longest context with which an engine really answers, found by starting it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

from provisioner import trying
from provisioner.agent_answers import DamagedAnswerError, trial_answer
from provisioner.lab.opening import Lab
from provisioner.measuring.search import Contexts, longest, next_try
from provisioner.measuring.trials import Tried, question, tried
from provisioner.probe import COMMAND
from provisioner.providers.base import Provider
from provisioner.services import knowledge_of
from provisioner.services.base import ResolvedService, Trial
from provisioner.values.address import Address
from provisioner.values.errors import InputError, PreflightError, ProviderError
from provisioner.values.events import ApplyProgress
from provisioner.values.plain_data import answer_value
from provisioner.values.state import Instance
from provisioner.workflow.effects import Effects
from provisioner.workflow.settling import settled
from provisioner.workflow.surveying import is_running, survey

LEAST = 4096
"""Tokens; a shorter context is searched only where it is asked for."""
LOAD_S, ANSWER_S = 600.0, 900.0
"""So long a start, and an answer, may take before it hangs, where the service's own start was not measured."""
SPARE_S = 120.0
ANSWERS = 5
"""Prompts that are answered with each context."""


@dataclass(frozen=True, slots=True)
class Subject:
    """An engine whose contexts are tried: where it runs, and how."""

    service: ResolvedService
    instance: Instance
    trial: Trial
    contexts: Contexts
    estimates: tuple[int, ...] = ()

    @property
    def unit(self) -> str:
        """Its unit."""
        return self.service.page.unit or ""


@dataclass(frozen=True, slots=True)
class Probed:
    """What was tried of an engine, in its order, and the longest context that answered; 0 where none did."""

    subject: Subject
    tries: tuple[Tried, ...]
    longest: int


def subject_of(lab: Lab, effects: Effects, name: str, low: int, high: int) -> Subject:
    """The engine of that name, CONTAINER or CONTAINER/SERVICE; raises ``InputError`` where it cannot be tried."""
    service = _service(lab, name)
    trial = knowledge_of(service.role).trial(service)
    if trial is None:
        raise InputError(
            f"Unable to probe {service.address}: nobody knows how another context of it is tried",
            resolution="Name a service of llama_cpp with one model for chats, or one of vllm.",
        )
    seen = survey(lab, effects, [service.container], needs_cards=False)
    (instance,) = seen.wanted
    if not is_running(instance, seen.actual):
        raise PreflightError(f"Unable to probe {service.address}: its container does not run", resolution="Run up.")
    written = service.option(trial.option) or 0
    most = high or max(trial.most, written)
    if not most:
        raise InputError(f"Unable to probe {service.address}: nobody tells what its model was made for: use --to")
    least = low or min(LEAST * trial.requests, most)
    contexts = Contexts(_stepped(least, trial.step), max(most, _stepped(least, trial.step)), trial.step)
    return Subject(service, instance, trial, contexts)


def _stepped(tokens: int, step: int) -> int:
    """The least of the engine's steps that is not less."""
    return -(-tokens // step) * step


def _service(lab: Lab, name: str) -> ResolvedService:
    found = [service for address, service in lab.resolved.services.items() if name in (address, service.container)]
    engines = [one for one in found if one.page.stage == "engine"] or found
    if len(engines) != 1:
        raise InputError(f"Unable to probe {name}: it names {len(engines)} services of the file, and one is wanted")
    return engines[0]


def probe_contexts(lab: Lab, effects: Effects, subject: Subject, known: Mapping[int, Tried]) -> Probed:
    """Start the engine with one context after the other until the longest that answers is known.

    ``known``: what was tried of the same engine before. It serves again with its own context when this ends.
    """
    provider = effects.providers[subject.instance.host]
    tries = dict(known)
    with effects.locked(lab.name, "probe") as lease, _stopped(subject, provider, effects):
        for context in _left(subject, tries):
            lease.check()
            effects.emit(ApplyProgress(subject.service.container, f"{context:,} tokens: trying"))
            tries[context] = _tried(subject, provider, context)
            one = tries[context]
            said = f"{context:,} tokens: {one.outcome}{f' ({one.words})' if one.words else ''}"
            effects.emit(ApplyProgress(subject.service.container, f"{said}, {one.took_s:.1f} s"))
    found = longest(subject.contexts, {context: one.is_answered for context, one in tries.items()})
    return Probed(subject, tuple(tries.values()), found or 0)


def _left(subject: Subject, tries: Mapping[int, Tried]) -> Iterator[int]:
    """Each context that is to be tried, by what came of those before."""
    while True:
        answered = {context: one.is_answered for context, one in tries.items()}
        context = next_try(subject.contexts, subject.estimates, answered)
        if context is None:
            return
        yield context


@contextmanager
def _stopped(subject: Subject, provider: Provider, effects: Effects) -> Iterator[None]:
    """The engine does not serve meanwhile: requests wait in its switch; then it is started again, and waited for."""
    one = replace(subject.instance, services=tuple(_mine(subject)))
    _run(provider, subject, "stop", 2 * subject.instance.stop_s + SPARE_S)
    try:
        yield
    finally:
        _run(provider, subject, "start", SPARE_S)
        settled([one], effects)


def _mine(subject: Subject) -> Iterator[object]:
    for service in subject.instance.services:
        if service.address == subject.service.address:
            yield service


def _run(provider: Provider, subject: Subject, verb: str, timeout_s: float) -> None:
    ran = provider.execute(subject.service.container, ["systemctl", verb, "--", subject.unit], timeout_s=timeout_s)
    if ran.returncode:
        words = ran.stderr.decode(errors="replace").strip()
        raise ProviderError(f"Unable to {verb} {subject.service.address}", details=words)


def _tried(subject: Subject, provider: Provider, context: int) -> Tried:
    asked = question(subject.service, subject.trial, context, (LOAD_S, ANSWER_S))
    program = zlib.compress(Path(trying.__file__).read_bytes())
    began = monotonic()
    looked = provider.look(
        COMMAND,
        {subject.service.container: json.dumps(asked).encode()},
        shared=program,
        timeout_s=LOAD_S + ANSWERS * ANSWER_S + SPARE_S,
    )
    for error in looked.failures.values():
        raise error
    (ran,) = looked.executions.values()
    if ran.returncode:
        raise ProviderError(f"Unable to try {context} tokens", details=ran.stderr.decode(errors="replace")[-500:])
    try:
        answer = trial_answer(answer_value(ran.stdout), asked)
    except (DamagedAnswerError, ValueError) as error:
        raise ProviderError(f"Unable to try {context} tokens: the answer is damaged: {error}") from error
    return tried(context, asked, answer, monotonic() - began)


Known = Callable[[Address], Mapping[int, Tried]]
