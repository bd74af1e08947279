"""The verb ``probe``: the longest context with which an engine really answers, found by starting it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from time import monotonic
from typing import Any

from provisioner import trying
from provisioner.agent_answers import DamagedAnswerError, trial_answer
from provisioner.lab.opening import Lab
from provisioner.measuring.results import digest_of, file_of, keep, tried_before
from provisioner.measuring.search import Contexts, bounds, longest, next_try
from provisioner.measuring.trials import Probed, Subject, Tried, foreseen_s, outcomes_of, question, tried
from provisioner.reconcile.effects import Effects
from provisioner.reconcile.gather import inputs_of
from provisioner.services import knowledge_of
from provisioner.services.base import ResolvedService, Trial
from provisioner.values.errors import InputError, ProviderError
from provisioner.values.plain_data import foreign
from provisioner.workflow.engine_pauses import (
    SPARE_S,
    asked_there,
    check_alone,
    check_queue,
    engine_named,
    look_at,
    pause,
    say,
    serve_who_waits,
    serving_again,
)
from provisioner.workflow.fitting import estimated_contexts

VERB = "probe"
LEAST = 4096
"""Tokens; a shorter context is searched only where it is asked for."""
LOAD_S, ANSWER_S = 600.0, 900.0
"""So long a start, and an answer, may take before it hangs."""
ANSWERS = 5
"""Prompts that are answered with each context."""
LONGEST_TRY_S = LOAD_S + ANSWERS * ANSWER_S + SPARE_S


def subject_of(lab: Lab, effects: Effects, name: str, low: int, high: int) -> Subject:
    """The engine of that name, CONTAINER or CONTAINER/SERVICE; raises ``InputError`` where it cannot be tried.

    ``low``, ``high``: the contexts that were asked for, 0: those that its model was made for.
    """
    service = engine_named(lab.with_headers, name, VERB)
    check_alone(service, VERB)
    trial = knowledge_of(service.role).trial(service)
    if trial is None:
        raise InputError(
            f"Unable to probe {service.address}: nobody knows how another context of it is tried",
            resolution="Name an engine with one model for chats.",
        )
    engine, seen = look_at(lab, effects, service, VERB)
    (desired,) = engine.instance.services
    return Subject(
        service=service,
        instance=engine.instance,
        trial=trial,
        contexts=_contexts(service, trial, low, high),
        digest=digest_of(inputs_of(desired), trial.option, engine.instance),
        start_s=seen.inside.starts.get(service.address, 0.0),
        estimates=_telling(estimated_contexts(lab, seen.cards).get(service.address, ()), trial, high),
    )


def _telling(estimates: Sequence[int], trial: Trial, high: int) -> tuple[int, ...]:
    """The estimates that tell where memory ends: none is more than the model was made for, though more is asked for."""
    if not trial.most or high <= trial.most:
        return tuple(estimates)
    return tuple(one for one in estimates if one // trial.step < trial.most // trial.step)


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
    with effects.locked(lab.name, "probe") as lease, serving_again(subject, effects):
        for context in _left(subject, tries):
            lease.check()
            if not may_refuse:
                _check_queue(subject, context, tries)
            say(subject, f"{context:,} tokens: trying", effects)
            pause(subject, effects, LONGEST_TRY_S)
            one = _tried(subject, context, effects)
            tries[context] = one
            keep(file, subject.digest, one)
            words = f" ({one.words})" if one.words else ""
            say(subject, f"{context:,} tokens: {one.outcome}{words}", effects)
            serve_who_waits(subject, effects)
    found = longest(subject.contexts, _answered(tries))
    return Probed(subject, tuple(tries.values()), found or 0)


def _check_queue(subject: Subject, context: int, tries: Mapping[int, Tried]) -> None:
    """Raise ``PreflightError`` where one try of that context takes longer than requests wait for the engine."""
    taken_s = foreseen_s(context, tries.values()) or subject.start_s
    check_queue(subject, taken_s, f"{context:,} tokens", VERB, "What was tried is kept, and the engine serves.")


def _answered(tries: Mapping[int, Tried]) -> dict[int, bool]:
    return {context: one.is_answered for context, one in tries.items()}


def _left(subject: Subject, tries: Mapping[int, Tried]) -> Iterator[int]:
    """Each context that is to be tried, by what came of those before."""
    while True:
        context = next_try(subject.contexts, subject.estimates, _answered(tries))
        if context is None:
            return
        yield context


def _tried(subject: Subject, context: int, effects: Effects) -> Tried:
    asked = question(subject.service, subject.trial, context, (LOAD_S, ANSWER_S))
    began = monotonic()
    answer = _trial_of(subject, asked, context, effects)
    return tried(context, asked, answer, monotonic() - began)


def _trial_of(subject: Subject, asked: Mapping[str, Any], context: int, effects: Effects) -> dict[str, Any]:
    """What its container answers; ``ProviderError`` where that is nothing that can be used."""
    what = f"{context} tokens"
    answer = asked_there(subject, trying, asked, what, effects, within_s=LONGEST_TRY_S)
    try:
        return foreign(trial_answer(answer, outcomes_of(asked)))
    except DamagedAnswerError as error:
        raise ProviderError(f"Unable to try {what}: the answer is damaged: {error}") from error
