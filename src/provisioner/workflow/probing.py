"""The verb ``probe``: the longest context with which an engine really answers, found by starting it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from provisioner import trying
from provisioner.agent_answers import DamagedAnswerError, trial_answer
from provisioner.lab.opening import Lab
from provisioner.lab.resolved import ResolvedLab
from provisioner.measuring.results import digest_of, file_of, keep, tried_before
from provisioner.measuring.search import Contexts, bounds, longest, next_try
from provisioner.measuring.trials import Probed, Subject, Tried, foreseen_s, outcomes_of, question, tried
from provisioner.probe import COMMAND
from provisioner.providers.base import Provider
from provisioner.services import knowledge_of
from provisioner.services.base import ResolvedService, Trial
from provisioner.stamp import inputs_of
from provisioner.values.errors import InputError, PreflightError, ProviderError
from provisioner.values.events import ApplyProgress
from provisioner.values.plain_data import answer_value
from provisioner.workflow.effects import Effects
from provisioner.workflow.fitting import estimated_contexts
from provisioner.workflow.settling import settled
from provisioner.workflow.surveying import is_running, survey

LEAST = 4096
"""Tokens; a shorter context is searched only where it is asked for."""
LOAD_S, ANSWER_S = 600.0, 900.0
"""So long a start, and an answer, may take before it hangs."""
SPARE_S = 120.0
ANSWERS = 5
"""Prompts that are answered with each context."""
LONGEST_TRY_S = LOAD_S + ANSWERS * ANSWER_S + SPARE_S
POLL_S = 0.5
LONGEST_SERVING_S = 600.0
"""So long those who waited are served before the next try."""
CONTROL = "/usr/local/lib/switch/control.py"
"""As role ``switch`` installs it; it says how many requests wait."""


def subject_of(lab: Lab, effects: Effects, name: str, low: int, high: int) -> Subject:
    """The engine of that name, CONTAINER or CONTAINER/SERVICE; raises ``InputError`` where it cannot be tried.

    ``low``, ``high``: the contexts that were asked for, 0: those that its model was made for.
    """
    service = _service(lab.with_headers, name)
    trial = knowledge_of(service.role).trial(service)
    if trial is None:
        raise InputError(
            f"Unable to probe {service.address}: nobody knows how another context of it is tried",
            resolution="Name an engine with one model for chats.",
        )
    if service.idle_s or service.share:
        raise InputError(
            f"Unable to probe {service.address}: something else starts and stops it meanwhile, "
            f"{'as it ends when nobody asks it' if service.idle_s else 'as it takes turns on its card'}",
            resolution=f"Leave out {'idle' if service.idle_s else 'its group in share'} for as long as it is probed.",
        )
    seen = survey(lab, effects, [service.container], needs_cards=False)
    (instance,) = seen.wanted
    if not is_running(instance, seen.actual):
        raise PreflightError(
            f"Unable to probe {service.address}: its container does not run",
            resolution=f"Run: provision up {service.container}",
        )
    estimate = estimated_contexts(lab, seen.cards).get(service.address)
    (desired,) = (one for one in instance.services if one.address == service.address)
    return Subject(
        service=service,
        instance=replace(instance, services=(desired,)),
        trial=trial,
        contexts=_contexts(service, trial, low, high),
        digest=digest_of(inputs_of(desired), trial.option, instance),
        start_s=seen.inside.starts.get(service.address, 0.0),
        estimates=() if estimate is None else (estimate,),
    )


def _service(lab: ResolvedLab, name: str) -> ResolvedService:
    found = [service for address, service in lab.services.items() if name in (address, service.container)]
    engines = [one for one in found if one.page.stage == "engine"] or found
    if len(engines) == 1:
        return engines[0]
    raise InputError(
        f"Unable to probe {name}: it names {len(engines)} services of the file, and one is wanted",
        resolution="Name it as CONTAINER/SERVICE.",
    )


def _contexts(service: ResolvedService, trial: Trial, low: int, high: int) -> Contexts:
    """Those that can be tried, in the engine's steps; ``InputError`` where nobody says up to which."""
    most = high or trial.most or service.option(trial.option) or 0
    least = low or min(LEAST * trial.requests, most)
    first, last = -(-least // trial.step) * trial.step, most // trial.step * trial.step
    if 0 < first <= last:
        return Contexts(first, last, trial.step)
    raise InputError(
        f"Unable to probe {service.address}: there is no context from {least} to {most} tokens",
        details=f"It takes them in steps of {trial.step}.",
        resolution="Say from where to where: --from TOKENS --to TOKENS.",
    )


def known_of(lab: Lab, subject: Subject) -> dict[int, Tried]:
    """What was tried of the same engine before, of the contexts that can be tried."""
    before = tried_before(file_of(lab.name, subject.service.address), subject.digest)
    return {context: one for context, one in before.items() if context in subject.contexts.tokens}


def most_tries(subject: Subject, known: Mapping[int, Tried]) -> int:
    """How many starts may be needed; 0 where nothing is left to be tried."""
    within = bounds(subject.contexts, _answered(known))
    left = within.refused - within.answered
    return min(left.bit_length() + 1, subject.contexts.most_tries) if not within.is_found else 0


def probe_contexts(
    lab: Lab, effects: Effects, subject: Subject, known: Mapping[int, Tried], *, may_refuse: bool
) -> Probed:
    """Start the engine with one context after the other until the longest that answers is known.

    ``known``: what was tried of the same engine before. Between two tries the engine serves who waits in its switch,
    and it serves with its own context when this ends. Unless ``may_refuse``, it raises ``PreflightError`` before a try
    that takes longer than requests wait.
    """
    tries = dict(known)
    file = file_of(lab.name, subject.service.address)
    with effects.locked(lab.name, "probe") as lease, _serving_again(subject, effects):
        for context in _left(subject, tries):
            lease.check()
            if not may_refuse:
                _check_queue(subject, context, tries)
            _say(subject, f"{context:,} tokens: trying", effects)
            _hold(subject, effects)
            _run(subject, "stop", effects)
            one = _tried(subject, context, effects)
            tries[context] = one
            keep(file, subject.digest, one)
            words = f" ({one.words})" if one.words else ""
            _say(subject, f"{context:,} tokens: {one.outcome}{words}", effects)
            _serve_who_waits(subject, effects)
    found = longest(subject.contexts, _answered(tries))
    return Probed(subject, tuple(tries.values()), found or 0)


def _check_queue(subject: Subject, context: int, tries: Mapping[int, Tried]) -> None:
    """Raise ``PreflightError`` where one try of that context takes longer than requests wait for the engine."""
    queue_s = subject.service.queue_s
    taken_s = foreseen_s(context, tries.values()) or subject.start_s
    if taken_s < queue_s:
        return
    raise PreflightError(
        f"Unable to try {context:,} tokens of {subject.service.address} without refusing requests: it takes "
        f"{taken_s:.0f} s, and they wait for {queue_s:.0f} s",
        details="What was tried is kept, and the engine serves.",
        resolution="Write a longer queue for it, or run this when nobody asks it: provision probe --refuse",
    )


def _answered(tries: Mapping[int, Tried]) -> dict[int, bool]:
    return {context: one.is_answered for context, one in tries.items()}


def _left(subject: Subject, tries: Mapping[int, Tried]) -> Iterator[int]:
    """Each context that is to be tried, by what came of those before."""
    while True:
        context = next_try(subject.contexts, subject.estimates, _answered(tries))
        if context is None:
            return
        yield context


@contextmanager
def _serving_again(subject: Subject, effects: Effects) -> Iterator[None]:
    """Whatever happens, the engine is started again, and waited for."""
    try:
        yield
    finally:
        _run(subject, "start", effects)
        settled([subject.instance], effects)


def _serve_who_waits(subject: Subject, effects: Effects) -> None:
    """Let the engine answer those who wait in its switch, before it is stopped again; nothing where nobody waits."""
    if not _waiting(subject, effects):
        return
    _say(subject, "answering requests that wait", effects)
    _run(subject, "start", effects)
    deadline = monotonic() + LONGEST_SERVING_S
    while _waiting(subject, effects) and monotonic() < deadline:
        sleep(POLL_S)


def _hold(subject: Subject, effects: Effects) -> None:
    """Have requests wait while its unit is stopped, which they do for no other stop; its next start ends that."""
    if subject.switch:
        _switch(subject, effects, "hold", "--within", f"{LONGEST_TRY_S:.0f}")


def _waiting(subject: Subject, effects: Effects) -> int:
    """How many requests wait in its switch; raises ``ProviderError`` where that does not say it."""
    if not subject.switch:
        return 0
    try:
        return int(answer_value(_switch(subject, effects, "state"))["waiting"])
    except (ValueError, KeyError, TypeError) as error:
        raise ProviderError(f"Unable to read what the switch before {subject.service.address} says: {error}") from error


def _switch(subject: Subject, effects: Effects, *words: str) -> bytes:
    """What its switch answers; raises ``ProviderError`` where it does not."""
    command = ["python3", "-IS", CONTROL, "--socket", subject.switch, *words]
    ran = _provider(subject, effects).execute(subject.container, command, timeout_s=SPARE_S)
    if ran.returncode:
        raise ProviderError(
            f"Unable to have the switch before {subject.service.address} do {words[0]!r}",
            details=ran.stderr.decode(errors="replace").strip()[-500:],
            resolution=f"Run: provision up {subject.container}",
        )
    return ran.stdout


def _run(subject: Subject, verb: str, effects: Effects) -> None:
    """Start or stop its unit; stopping waits for running answers."""
    timeout_s = 2 * subject.instance.stop_s + SPARE_S
    ran = _provider(subject, effects).execute(
        subject.container, ["systemctl", verb, "--", subject.unit], timeout_s=timeout_s
    )
    if ran.returncode:
        words = ran.stderr.decode(errors="replace").strip()
        raise ProviderError(f"Unable to {verb} {subject.service.address}", details=words)


def _provider(subject: Subject, effects: Effects) -> Provider:
    return effects.providers[subject.instance.host]


def _say(subject: Subject, text: str, effects: Effects) -> None:
    effects.emit(ApplyProgress(subject.container, text))


def _tried(subject: Subject, context: int, effects: Effects) -> Tried:
    asked = question(subject.service, subject.trial, context, (LOAD_S, ANSWER_S))
    began = monotonic()
    answer = _trial_of(subject, asked, context, effects)
    return tried(context, asked, answer, monotonic() - began)


def _trial_of(subject: Subject, asked: Mapping[str, Any], context: int, effects: Effects) -> dict[str, Any]:
    """What its container answers; ``ProviderError`` where that is nothing that can be used."""
    looked = _provider(subject, effects).look(
        COMMAND,
        {subject.container: json.dumps(asked).encode()},
        shared=zlib.compress(Path(trying.__file__).read_bytes()),
        timeout_s=LONGEST_TRY_S,
    )
    for error in looked.failures.values():
        raise error
    (ran,) = looked.executions.values()
    said = ran.stderr.decode(errors="replace").strip()[-500:]
    if ran.returncode:
        raise ProviderError(f"Unable to try {context} tokens: python3 ended with {ran.returncode}", details=said)
    try:
        return trial_answer(answer_value(ran.stdout), outcomes_of(asked))
    except (DamagedAnswerError, ValueError) as error:
        raise ProviderError(f"Unable to try {context} tokens: the answer is damaged: {error}") from error
