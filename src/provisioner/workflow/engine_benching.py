"""``bench --kind engine``: what the program that serves computes in a second, by llama-bench, in its own container."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from time import monotonic, sleep

from provisioner import bench_in_container
from provisioner.agent_answers import DamagedAnswerError, bench_answer, served_answer
from provisioner.lab.opening import Lab
from provisioner.measuring.budget import SPREAD_S, trials_within
from provisioner.measuring.engine_bench import Arrangement, Served, Subject, question
from provisioner.measuring.engines import Engine
from provisioner.measuring.history import Result, file_of, keep
from provisioner.measuring.llama_bench import UnknownLineError
from provisioner.reconcile.effects import Effects
from provisioner.services import knowledge_of
from provisioner.services.base import EngineBench
from provisioner.trial_unit import ANSWERED, OUTCOMES
from provisioner.values.errors import InputError, PreflightError, ProviderError, VerificationError
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

VERB = "bench"
TRIAL_S = 1800.0
"""So long one start of llama-bench may take before it hangs."""
LONGEST_TRIAL_S = TRIAL_S + 2 * SPARE_S


def subject_of(lab: Lab, effects: Effects, name: str) -> Subject:
    """The engine of that name, CONTAINER or CONTAINER/SERVICE; raises ``InputError`` where it cannot be measured."""
    service = engine_named(lab.with_headers, name, VERB)
    check_alone(service, VERB)
    bench = knowledge_of(service.role).engine_bench(service)
    if bench is None:
        raise InputError(
            f"Unable to measure {service.address}: llama-bench knows nothing of what it computes with",
            resolution="Name a llama.cpp with one model.",
        )
    engine, seen = look_at(lab, effects, service, VERB)
    served = served_there(engine, bench, effects)
    if not served.words:
        raise PreflightError(
            f"Unable to measure {service.address}: its unit does not start {bench.serves}",
            resolution=f"Run: provision up {service.container}",
        )
    start_s = seen.inside.starts.get(service.address, 0.0)
    return Subject(service=service, instance=engine.instance, bench=bench, served=served, start_s=start_s)


def served_there(engine: Engine, bench: EngineBench, effects: Effects, *, forget: bool = False) -> Served:
    """With which words an engine is served in its container, none where it is another program, and on what.

    ``forget``: what a trial has written there is taken away.
    """
    asked = {**question(engine, bench, (), 0), "forget": forget}
    answer = asked_there(engine, bench_in_container, asked, "a look", effects, within_s=SPARE_S)
    try:
        said = served_answer(answer)
    except DamagedAnswerError as error:
        raise ProviderError(f"Unable to look how {engine.service.address} is served: {error}") from error
    return Served(**{**said, "words": tuple(said["words"])})


def measure_engine(
    lab: Lab,
    effects: Effects,
    subject: Subject,
    arranged: Sequence[Arrangement],
    *,
    trials: int,
    may_refuse: bool,
) -> tuple[Result, ...]:
    """What each arrangement computes, measured in turns, and kept.

    A first turn counts for nothing. ``trials``: how many follow; 0: as many as fit into the time that they may take.
    Raises ``VerificationError`` where nothing is measured; unless ``may_refuse``, ``PreflightError`` where one of them
    takes longer than requests wait.
    """
    with effects.locked(lab.name, VERB) as lease, serving_again(subject, effects):
        turn_s, wanted, number = subject.start_s * len(arranged), 1, 0
        began = monotonic()
        while number <= wanted:
            lease.check()
            if not may_refuse:
                check_queue(subject, turn_s, "one turn", VERB, "Nothing is kept of it, and the engine serves.")
            _wait_until(began + number * SPREAD_S)
            text = f"trial {number} of {wanted}" if number else "a first one that does not count"
            say(subject, text, effects, goes_on=number > 1)
            turn_s = _turn(subject, arranged, effects)
            if not number:
                wanted = trials or trials_within(turn_s / len(arranged))
                for one in arranged:
                    one.trials.clear()
            number += 1
    at = datetime.now(UTC).isoformat(timespec="seconds")
    results = tuple(one.result(subject, at) for one in arranged)
    for result in results:
        keep(file_of(lab.name, subject.service.address), result)
    return results


def _wait_until(moment: float) -> None:
    """Wait for a moment of the clock that is not in a hurry (``monotonic``); none that is over."""
    sleep(max(moment - monotonic(), 0.0))


def _turn(subject: Subject, arranged: Sequence[Arrangement], effects: Effects) -> float:
    """Measure each of them once, with the engine stopped for it, and say how many seconds that took."""
    serve_who_waits(subject, effects)
    pause(subject, effects, LONGEST_TRIAL_S * len(arranged))
    return sum(_trial(subject, one, effects) for one in arranged)


def _trial(subject: Subject, arranged: Arrangement, effects: Effects) -> float:
    """Measure once, and say how many seconds that took, the way to the container included."""
    began = monotonic()
    asked = question(subject, subject.bench, arranged.command, TRIAL_S)
    answer = asked_there(subject, bench_in_container, asked, "llama-bench", effects, within_s=LONGEST_TRIAL_S)
    address = subject.service.address
    try:
        said = bench_answer(answer, OUTCOMES)
        if said["outcome"] != ANSWERED:
            raise VerificationError(
                f"Unable to measure {address}: {said['outcome']}",
                details=said["words"],
                resolution="The engine serves as before. Sweep smaller values, where it has no room.",
            )
        arranged.add(said["lines"], float(said["waited"]))
    except (DamagedAnswerError, UnknownLineError) as error:
        raise ProviderError(f"Unable to measure {address}: {error}") from error
    return max(float(said["took_s"]), monotonic() - began)
