"""``bench --kind quality``: what quants have lost against their parent, by llama-perplexity, in their own container."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from provisioner import bench_in_container
from provisioner.agent_answers import DamagedAnswerError, bench_answer
from provisioner.lab.opening import Lab
from provisioner.measuring.engines import Engine
from provisioner.measuring.history import Result, file_of, keep
from provisioner.measuring.llama_perplexity import (
    NoFigureError,
    Quality,
    logits_bytes,
    memory_bytes,
    perplexity_in,
    quality_in,
)
from provisioner.measuring.quality import (
    Judged,
    Reading,
    Subject,
    base_question,
    judging_question,
    result_of,
    unlike,
)
from provisioner.reconcile.effects import Effects
from provisioner.services import knowledge_of
from provisioner.services.base import ResolvedService
from provisioner.trial_unit import ANSWERED, HUNG, OUTCOMES
from provisioner.values.errors import InputError, PreflightError, ProviderError, VerificationError
from provisioner.values.quantities import size_text
from provisioner.workflow.engine_benching import served_there
from provisioner.workflow.engine_pauses import (
    SPARE_S,
    asked_there,
    check_alone,
    engine_named,
    look_at,
    pause,
    say,
    serve_who_waits,
    serving_again,
)

VERB = "bench"
LONGEST_S = 4 * 3600.0
"""So long one model may read."""
IN_TIME = "The engine serves as before. Say fewer --chunks, or --refuse where requests need not wait for it."
NO_ROOM = "The engine serves as before. A model that has no room on a card needs fewer gpu_layers."
SPARE_DISK = 2**28
"""Bytes of the container's disk that are left for everybody else."""


def subject_of(lab: Lab, effects: Effects, name: str, parent: str) -> Subject:
    """The engine of that name with its parent and its quants; raises ``InputError`` where they cannot be judged."""
    service = engine_named(lab.with_headers, name, VERB)
    check_alone(service, VERB)
    bench = knowledge_of(service.role).quality_bench(service)
    if bench is None:
        raise InputError(
            f"Unable to judge the models of {service.address}: it has none beside their parent, or no llama-perplexity",
            resolution="Write perplexity: true and models: [QUANT, PARENT] for it, and bring it up.",
        )
    if parent not in service.model_names:
        known = ", ".join(service.model_names)
        raise InputError(
            f"Unable to judge the models of {service.address}: it has no {parent}", resolution=f"Name one of: {known}."
        )
    engine, _ = look_at(lab, effects, service, VERB)
    served = served_there(engine, bench, effects)
    if not served.words:
        raise PreflightError(
            f"Unable to judge the models of {service.address}: its unit does not start {bench.serves}",
            resolution=f"Run: provision up {service.container}",
        )
    models = list(_models(engine, service))
    (of_all,) = (one for one in models if one.name == parent)
    quants = tuple(one for one in models if one.name != parent)
    for quant in quants:
        if reason := unlike(of_all, quant):
            raise InputError(
                f"Unable to judge {quant.name} by {parent}: it has {reason}",
                resolution="A parent is the same model with more bits for each weight.",
            )
    return Subject(service, engine.instance, bench, served, of_all, quants)


def _models(engine: Engine, service: ResolvedService) -> Iterator[Judged]:
    """The models of a service, as its role is told of them."""
    (desired,) = engine.instance.services
    for entry in desired.variables[f"{service.role}_models"]:
        name, path = str(entry["alias"]), str(entry["path"])
        header = service.headers.get(name)
        if header is None or not header.tokens:
            raise PreflightError(f"Unable to judge {name}: its file does not say how many items its vocabulary has")
        yield Judged(name, path, header, PurePosixPath(path).parts[-3])


def check_wait(subject: Subject, *, may_refuse: bool) -> None:
    """Raise ``PreflightError`` where requests would be refused and may not be."""
    if not subject.service.queue_s and not may_refuse:
        raise PreflightError(
            f"Unable to judge the models of {subject.service.address} without refusing requests: none waits for it",
            details="Nothing was stopped.",
            resolution=f"Write a queue for it, or run this when nobody asks it: provision {VERB} --refuse",
        )


def check_room(subject: Subject, chunks: int) -> None:
    """Raise ``PreflightError`` where the container has too little disk or memory for what the parent holds."""
    vocabulary, service = subject.parent.header.tokens, subject.service
    needed = logits_bytes(vocabulary, chunks) + SPARE_DISK
    if needed > subject.served.free:
        raise PreflightError(
            f"Unable to judge the models of {service.address}: what their parent holds of {chunks} chunks takes "
            f"{size_text(needed)} of disk, and {service.container} has {size_text(subject.served.free)}",
            details="Nothing was stopped.",
            resolution="Say fewer --chunks, or write a larger disk.",
        )
    memory = memory_bytes(vocabulary)
    if service.memory and memory > service.memory:
        raise PreflightError(
            f"Unable to judge the models of {service.address}: what is reckoned of one chunk takes {size_text(memory)} "
            f"of memory, and {service.container} has {size_text(service.memory)}",
            details="Nothing was stopped.",
            resolution="Write more memory for it.",
        )


def judge_quants(
    lab: Lab, effects: Effects, subject: Subject, reading: Reading, *, may_refuse: bool
) -> Sequence[tuple[Judged, Quality, Result]]:
    """What each quant has lost, measured with the engine stopped, and kept.

    Raises ``VerificationError`` where one of them is not measured, which is also so where one takes longer than
    requests wait, unless ``may_refuse``.
    """
    found = []
    within_s = LONGEST_S if may_refuse else min(subject.service.queue_s, LONGEST_S)
    with effects.locked(lab.name, VERB) as lease, serving_again(subject, effects), _forgetting(subject, effects):
        served_there(subject, subject.bench, effects, forget=True)
        asked = base_question(subject, reading, within_s)
        perplexity_of(subject.parent, _told(subject, subject.parent, asked, effects))
        for quant in subject.quants:
            lease.check()
            said = _told(subject, quant, judging_question(subject, quant, within_s), effects)
            quality = quality_of(quant, said)
            at = datetime.now(UTC).isoformat(timespec="seconds")
            result = result_of(subject, quant, quality, reading, at)
            keep(file_of(lab.name, subject.service.address), result)
            found.append((quant, quality, result))
    return found


@contextmanager
def _forgetting(subject: Subject, effects: Effects) -> Iterator[None]:
    """Whatever happens, what its parent wrote is taken away: that may be many GB."""
    try:
        yield
    finally:
        served_there(subject, subject.bench, effects, forget=True)


def _told(subject: Subject, model: Judged, asked: Mapping[str, Any], effects: Effects) -> list[str]:
    """What llama-perplexity says of a model."""
    serve_who_waits(subject, effects)
    pause(subject, effects, LONGEST_S + 2 * SPARE_S)
    say(subject, f"{model.name} reads the text", effects)
    answer = asked_there(
        subject, bench_in_container, asked, "llama-perplexity", effects, within_s=LONGEST_S + 2 * SPARE_S
    )
    try:
        said = bench_answer(answer, OUTCOMES)
    except DamagedAnswerError as error:
        raise ProviderError(f"Unable to judge {model.name}: {error}") from error
    if said["outcome"] != ANSWERED:
        raise VerificationError(
            f"Unable to judge {model.name}: {said['outcome']}",
            details=said["words"],
            resolution=IN_TIME if said["outcome"] == HUNG else NO_ROOM,
        )
    return list(said["lines"])


def perplexity_of(parent: Judged, said: Iterable[str]) -> float:
    """The parent's own figure; raises ``VerificationError`` where it has not come to the end."""
    try:
        return perplexity_in(said)
    except NoFigureError as error:
        raise _unjudged(parent, error) from error


def quality_of(quant: Judged, said: Iterable[str]) -> Quality:
    """What a quant has lost; raises ``VerificationError`` where that is not said."""
    try:
        return quality_in(said)
    except NoFigureError as error:
        raise _unjudged(quant, error) from error


def _unjudged(model: Judged, error: NoFigureError) -> VerificationError:
    return VerificationError(f"Unable to judge {model.name}: {error}", resolution="The engine serves as before.")
