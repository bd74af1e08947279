"""The verb ``probe``: the longest context with which an engine really answers, found by starting it."""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate
from math import log
from pathlib import Path
from time import monotonic
from typing import Any

from provisioner.gpus.cards import Card
from provisioner.inside import trial
from provisioner.inside.answers import trial_answer
from provisioner.inside.trial_unit import ANSWERED, CRASHED, HUNG, NO_ROOM, OUTCOMES
from provisioner.lab import ModelFile
from provisioner.lab.opening import Lab
from provisioner.loads.engines import EngineLoads
from provisioner.loads.terms import largest_context
from provisioner.measuring.pause import (
    SPARE_S,
    WITHOUT,
    Engine,
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
from provisioner.reconcile.effects import Effects
from provisioner.reconcile.gather import inputs_of
from provisioner.report.style import PLAIN, Style, count_text, duration_text, safe_line, table
from provisioner.services import knowledge_of
from provisioner.services.base import CONTEXT, ResolvedService, Trial
from provisioner.serving.fit import budgets_of
from provisioner.values import paths
from provisioner.values.address import Address
from provisioner.values.errors import InputError
from provisioner.values.plain_data import foreign, json_value
from provisioner.values.regular_files import text_of
from provisioner.values.state import Instance

MIB = 2**20

# The choice of the context that is tried next, until the longest one that answers is known. Pure.
#
# Estimates say where it probably is, and are wrong by up to a factor of two. So every context gets a weight by them,
# and the one that parts the weight into halves is tried. No estimate may cost too much: a try leaves on both sides of
# it only as much as the tries that are left can tell apart, one more than without any estimate where it is wrong by
# that factor.

NEAR, FAR, ANYWHERE = 0.03, 0.2, 2.0
"""By what part, and by what factor, estimates were wrong where they were compared with what engines answered."""
SHARES = {NEAR: 0.5, FAR: 0.25, ANYWHERE: 0.2}
"""How much weight lies there; the rest is everybody's."""
SPARE = 1
"""So many tries more than halving takes."""
BESIDE = 3
"""So many more where the longest one lies where no estimate is."""


class ContradictionError(Exception):
    """A context did not answer, and a longer one did."""


@dataclass(frozen=True, slots=True)
class Contexts:
    """The contexts that an engine can be asked for: from ``low`` to ``high`` tokens, ``step`` apart."""

    low: int
    high: int
    step: int

    def __post_init__(self) -> None:
        """Refuse a range in which there is nothing to be tried."""
        if self.step < 1 or self.low < 1 or self.high < self.low:
            raise ValueError(f"no contexts: {self}")

    @property
    def tokens(self) -> range:
        """Each of them, in tokens."""
        return range(self.low, self.high + 1, self.step)

    @property
    def most_tries(self) -> int:
        """How many tries at most lead to the longest one that answers."""
        return len(self.tokens).bit_length() + SPARE


@dataclass(frozen=True, slots=True)
class Bounds:
    """Positions among the contexts: the longest that answered (-1: none did), the shortest that did not."""

    answered: int
    refused: int

    @property
    def is_found(self) -> bool:
        """Whether nothing is left to be tried between them."""
        return self.refused == self.answered + 1


def bounds(contexts: Contexts, tried: Mapping[int, bool]) -> Bounds:
    """Where the longest one lies by what was tried (tokens, whether it answered).

    Raises ``ContradictionError`` where a longer one answered and a shorter one did not.
    """
    tokens = contexts.tokens
    answered, refused = -1, len(tokens)
    for length, is_answered in tried.items():
        position = tokens.index(length)
        if is_answered:
            answered = max(answered, position)
        else:
            refused = min(refused, position)
    if refused <= answered:
        raise ContradictionError(f"{tokens[refused]} tokens were not answered, and {tokens[answered]} were")
    return Bounds(answered, refused)


def longest(contexts: Contexts, tried: Mapping[int, bool]) -> int | None:
    """The longest context that answers, in tokens; 0 where the shortest does not, None while it is not known."""
    found = bounds(contexts, tried)
    if not found.is_found:
        return None
    return contexts.tokens[found.answered] if found.answered >= 0 else 0


def next_try(contexts: Contexts, estimates: Sequence[int], tried: Mapping[int, bool]) -> int | None:
    """The context that is tried next, in tokens; None once the longest one is known."""
    within = bounds(contexts, tried)
    if within.is_found:
        return None
    # The longest one is at one of these positions, or before all of them; a try says on which side of it.
    positions = range(within.answered, within.refused)
    weights = list(accumulate(_weight(contexts, estimates, position) for position in positions))
    room = list(accumulate(_room(contexts, estimates, position) for position in positions))
    most = 0.5 ** (len(tried) + 1)
    half = bisect_left(weights, weights[-1] / 2) + 1
    least_before = bisect_left(room, room[-1] - most) + 1 if room[-1] > most else 1
    most_before = bisect_right(room, most)
    chosen = min(max(half, least_before), most_before, len(positions) - 1)
    return contexts.tokens[positions[max(chosen, 1)]]


def _room(contexts: Contexts, estimates: Sequence[int], position: int) -> float:
    """Which part of all outcomes of its tries a context may take: half as much for each that it may need."""
    length = contexts.tokens[max(position, 0)]
    is_thought_of = any(estimate / ANYWHERE <= length <= estimate * ANYWHERE for estimate in estimates)
    tries = contexts.most_tries if is_thought_of or not estimates else contexts.most_tries + BESIDE
    return 0.5**tries


def _weight(contexts: Contexts, estimates: Sequence[int], position: int) -> float:
    """How probable it is that this is the longest one, as a part of a whole that need not be one."""
    everybodys = (1 - sum(SHARES.values())) / len(contexts.tokens)
    if position < 0 or not estimates:
        return everybodys
    length = contexts.tokens[position]
    return everybodys + sum(_by(estimate, length, contexts.step) for estimate in estimates) / len(estimates)


def _by(estimate: int, length: int, step: int) -> float:
    """The weight that one estimate gives a context: that of each circle in which it lies, by how many lie there."""
    weight = 0.0
    for wrong, share in SHARES.items():
        if wrong == ANYWHERE:
            is_inside = estimate / wrong <= length <= estimate * wrong
            weight += share * step / (length * 2 * log(wrong)) if is_inside else 0.0
            continue
        width = max(wrong * length, step)
        if abs(length - estimate) <= width:
            weight += share * step / (2 * width)
    return weight


# Doubts whether an answer comes of its whole prompt: an engine that drops a part of it answers all the same. Pure.
#
# One token is changed near the beginning, the middle and the end of a long prompt. Where all of it counts, each of them
# changes how probable the next tokens are; where a part was dropped, what was changed there changes nothing.

BEGINNING, MIDDLE, END = "beginning", "middle", "end"
PLACES: Mapping[str, float] = {BEGINNING: 0.02, MIDDLE: 0.5, END: 0.98}
"""Which part of the prompt stands before the token that is changed."""
LOUDER = 3.0
"""So many times what the same prompt differs from itself a change has to differ: cards add in no fixed order."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What an engine said to a prompt: how many tokens it counted, and log-probabilities of those that may follow."""

    tokens: int
    following: Mapping[str, float]


def places_in(tokens: int) -> dict[str, int]:
    """Where in a prompt of so many tokens one is changed."""
    return {place: int(part * tokens) for place, part in PLACES.items()}


def difference(one: Heard, other: Heard) -> float:
    """By how much two answers differ: the largest difference of a log-probability that both tell.

    Infinite where they tell of no token together.
    """
    both = one.following.keys() & other.following.keys()
    if not both:
        return float("inf")
    return max(abs(one.following[token] - other.following[token]) for token in both)


def doubts(sent: int, plain: Heard, again: Heard, changed: Mapping[str, Heard]) -> Iterator[str]:
    """Why the answer does not come of all ``sent`` tokens; nothing where it does.

    ``again``: what the same prompt was answered a second time; ``changed``: what was answered with another token, by
    the place at which it stood.
    """
    if plain.tokens != sent:
        yield f"it counted {plain.tokens} tokens, and {sent} were sent"
    if not plain.following:
        yield "it did not tell how probable the next tokens are"
        return
    noise = difference(plain, again)
    for place, heard in changed.items():
        moved = difference(plain, heard)
        if moved <= LOUDER * noise or moved == 0.0:
            yield f"another token near the {place} of its prompt changed nothing of the answer"


# A try of one context: what its container is asked, and what came of it.

FILLED = 0.95
"""So much of what a request may hold a prompt takes."""
FIRST_TOKEN, LAST_TOKEN = 100, 340
"""Numbers of tokens of which prompts are made: every vocabulary has them, and they end no answer."""
LEAST_LEFT = 128 * MIB
"""Bytes that its container has to have left beside it: what brings it up and proves it runs there, too."""
DOUBTFUL = "doubtful"
"""It answered, and not to all of its prompt."""
TRYING = "trying"
"""What a container is asked to do, beside what the agent and other programs there are asked."""


@dataclass(frozen=True, slots=True)
class Tried:
    """How one context went: ``answered``, or why not; ``words`` say more."""

    context: int
    outcome: str
    words: str = ""
    load_s: float = 0.0
    took_s: float = 0.0
    memory: int = -1
    """Bytes that its processes took once it had answered, and that its cards had in use; -1 where nobody tells."""
    card: int = -1

    @property
    def is_answered(self) -> bool:
        """Whether an answer came of all of a prompt."""
        return self.outcome == ANSWERED


@dataclass(frozen=True, slots=True)
class Subject(Engine):
    """An engine whose contexts are tried: how, and by which sum of its options results are kept.

    ``start_s``: how long the slowest of its last starts took, 0 where none was measured.
    """

    trial: Trial
    contexts: Contexts
    digest: str
    start_s: float = 0.0
    estimates: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Probed:
    """What was tried of an engine, in its order, and the longest context that answered; 0 where none did."""

    subject: Subject
    tries: tuple[Tried, ...]
    longest: int


def question(service: ResolvedService, trial: Trial, context: int, limits_s: tuple[float, float]) -> dict[str, Any]:
    """What the container is asked; ``limits_s``: seconds for loading, and for each answer."""
    load_s, answer_s = limits_s
    tokens = int(context // trial.requests * FILLED)
    at = "http://127.0.0.1:{port}"
    (model,) = service.model_names
    return {
        "do": TRYING,
        "unit": service.page.unit,
        "without": list(WITHOUT),
        "changes": [[pattern, other.replace(CONTEXT, str(context))] for pattern, other in trial.changes],
        "shows": [trial.word, str(context)],
        "health": f"{at}{service.health}",
        "load_s": load_s,
        "answer_s": answer_s,
        "no_room": list(trial.no_room),
        "placed": trial.placed,
        "ask": {
            "path": trial.path,
            "url": at,
            "key_file": trial.key_file,
            "key_name": trial.key_name,
            "encode": trial.encode,
            "model": model,
            "tokens": tokens,
            "first": FIRST_TOKEN,
            "last": LAST_TOKEN,
            "changed": [None, None, *places_in(tokens).values()],
        },
    }


def outcomes_of(asked: Mapping[str, Any]) -> dict[str, int]:
    """What an answer may say that became of it, and how many prompts were heard then."""
    return {outcome: len(asked["ask"]["changed"]) if outcome == ANSWERED else 0 for outcome in OUTCOMES}


def tried(context: int, asked: Mapping[str, Any], answer: Mapping[str, Any], took_s: float) -> Tried:
    """What came of it, by what the container answered."""
    outcome, words = answer["outcome"], answer["words"]
    if outcome == ANSWERED:
        plain, again, *others = (Heard(one["tokens"], one["following"]) for one in answer["heard"])
        changed = dict(zip(PLACES, others, strict=True))
        found = [*_misplaced(asked, answer["layers"]), *doubts(answer["sent"], plain, again, changed)]
        outcome, words = (DOUBTFUL, "; ".join(found)) if found else _by_what_is_left(answer["left"])
    return Tried(context, outcome, words, float(answer["load_s"]), took_s, answer["memory"], answer["card"])


def _by_what_is_left(left: int) -> tuple[str, str]:
    """Whether its container has room for what looks after it, and what is said where it has not."""
    if 0 <= left < LEAST_LEFT:
        return NO_ROOM, f"it answered and left {left // MIB} MiB of memory, where its proof needs {LEAST_LEFT // MIB}"
    return ANSWERED, ""


def _misplaced(asked: Mapping[str, Any], layers: Sequence[int]) -> Iterator[str]:
    """What of its layers is not where it belongs: on the card, all of them, where the file asks for no number."""
    there, all_of_them = layers
    if asked["placed"] and (there < all_of_them or not all_of_them):
        yield f"it has {there} of {all_of_them} layers on the card" if all_of_them else "it says nothing of layers"


def foreseen_s(context: int, tries: Iterable[Tried]) -> float:
    """How many seconds a try of that context takes by the longest that answered; 0 where none has yet.

    Its start takes as long again, and its answers longer by what it holds more.
    """
    answered = [one for one in tries if one.is_answered]
    if not answered:
        return 0.0
    last = max(answered, key=lambda one: one.context)
    asked_s = max(last.took_s - last.load_s, 0.0)
    return last.load_s + asked_s * context / last.context


# The record of what was tried, kept line by line while it goes: a killed run's next one goes on there.
#
# What counts for an engine is what was tried of the same one: of the same role, options, model, memory and card.

FOLDER = "contexts"
BY_CHANCE = (CRASHED, HUNG)
FIELDS = ("context", "outcome", "words", "load_s", "took_s", "memory", "card")


def digest_of(inputs: Mapping[str, Any], option: str, container: Instance) -> str:
    """The same for the same engine in a container of the same size, whatever context it has.

    ``inputs``: what its role is run with (``reconcile.gather.inputs_of``).
    """
    variables = {name: digest for name, digest in inputs["variables"].items() if not name.endswith(f"_{option}")}
    cards = [[one.name, sorted(one.properties.items())] for one in container.devices if one.kind == "gpu"]
    where = [container.host, container.cpu, container.memory, sorted(cards)]
    content = json.dumps({"role": inputs["role"], "variables": variables, "where": where}, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def file_of(lab: str, address: Address) -> Path:
    """Where what was tried of a service is kept."""
    return paths.state(lab) / FOLDER / f"{address.container}.{address.service}.jsonl"


@dataclass(frozen=True, slots=True)
class Kept:
    """What was tried once: when (ISO 8601; an earlier version kept none), of which engine, and what came of it."""

    at: str
    digest: str
    tried: Tried


def tries_in(file: Path) -> list[Kept]:
    """Everything that was ever tried of a service, the oldest first; lines that a kill has cut are left out."""
    try:
        lines = text_of(file).splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        try:
            said = json_value(line)
            one = Tried(**{name: said[name] for name in FIELDS})
            found.append(Kept(str(said.get("at", "")), str(said["digest"]), replace(one, context=int(one.context))))
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
    return found


def tried_before(file: Path, digest: str) -> dict[int, Tried]:
    """What was tried of that engine, by context; lines that a kill has cut, or of others, are left out.

    Left out is also what may go otherwise the next time: that it crashed or hung, and whatever else than an answer came
    of a context that is shorter than one which was answered.
    """
    found: dict[int, Tried] = {}
    for kept in tries_in(file):
        if kept.digest == digest:
            found[kept.tried.context] = kept.tried
    answered = max((context for context, one in found.items() if one.is_answered), default=0)
    return {
        context: one
        for context, one in found.items()
        if one.is_answered or (context > answered and one.outcome not in BY_CHANCE)
    }


def keep(file: Path, digest: str, tried: Tried) -> None:
    """Add what was tried; raises ``OSError`` where nothing can be written."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    line = json.dumps({"at": at, "digest": digest, **asdict(tried)}, sort_keys=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as stream:
        stream.write(f"{line}\n")


# Estimates of the longest context, by the sums of `fit`.

BESIDE_WEIGHTS = 64 * MIB
"""Bytes that a container with one service, and an engine's program, take beside what is added up; reckoned."""


def estimated_contexts(
    lab: Lab, files: Mapping[str, ModelFile], cards: Mapping[str, Card]
) -> Mapping[Address, tuple[int, ...]]:
    """Estimates of the largest context of each engine by the sums of ``fit``, in tokens: what its card holds.

    Without a card there are two of what its container's memory holds: with its weights in that, and without them, as
    the pages of a file that is only mapped count for whoever has read them first. Engines of which nobody can reckon
    it, and those of several models, are left out.
    """
    found: dict[Address, tuple[int, ...]] = {}
    for budget in budgets_of(lab, files, cards):
        for engine in budget.engines:
            if len(engine.loads) != 1:
                continue
            (load,) = engine.loads
            if budget.usable is not None:
                estimates = [largest_context(load, budget.free_for(load))]
            elif budget.card is not None:
                estimates = []
            else:
                free = _container_bytes(lab, engine)
                estimates = [largest_context(load, free), largest_context(load, free + load.weights)]
            told = tuple(sorted({one for one in estimates if one}))
            if told:
                found[engine.address] = told
    return found


def _container_bytes(lab: Lab, engine: EngineLoads) -> int:
    """What an engine that computes on the processor may have of its container's memory; 0 where nothing limits that."""
    container = lab.resolved.containers[engine.container]
    is_limited = container.written.gpu is None and len(container.services) == 1
    return max(container.memory - LEAST_LEFT - BESIDE_WEIGHTS, 0) if is_limited else 0


# The search: the engine is started with one context after the other, and serves between two of them.

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
    service = engine_named(lab.resolved, name, VERB)
    check_alone(service, VERB)
    trial = knowledge_of(service.role).trial(service)
    if trial is None:
        raise InputError(
            f"Unable to probe {service.address}: nobody knows how another context of it is tried",
            resolution="Name an engine with one model for chats.",
        )
    engine, seen = look_at(lab, effects, service, VERB)
    (desired,) = engine.instance.services
    estimates = estimated_contexts(lab, seen.models.files, seen.cards).get(service.address, ())
    return Subject(
        service=service,
        instance=engine.instance,
        trial=trial,
        contexts=_contexts(service, trial, low, high),
        digest=digest_of(inputs_of(desired), trial.option, engine.instance),
        start_s=seen.inside.starts.get(service.address, 0.0),
        estimates=_telling(estimates, trial, high),
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
                taken_s = foreseen_s(context, tries.values()) or subject.start_s
                kept = "What was tried is kept, and the engine serves."
                check_queue(subject, taken_s, f"{context:,} tokens", VERB, kept)
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
    check = partial(trial_answer, outcomes=outcomes_of(asked))
    answer = foreign(asked_there(subject, trial, asked, check, effects, within_s=LONGEST_TRY_S))
    return tried(context, asked, answer, monotonic() - began)


# The search as text: what it may take, and what it has found.

HEAD = ("TOKENS", "OUTCOME", "LOADED IN", "ALL OF IT", "MEMORY", "CARD", "")


def foretold_text(subject: Subject, tries: int) -> str:
    """How often it is started, for how long, and what becomes of requests meanwhile."""
    service = subject.service
    first, last = subject.contexts.low, subject.contexts.high
    starts = f"{service.address} is started {count_text(tries, 'time')} at most, with {first:,} to {last:,} tokens."
    taken = (
        f"By its last starts one takes {duration_text(subject.start_s)}"
        if subject.start_s
        else "How long one takes is not known"
    )
    waits = f"requests wait for up to {duration_text(service.queue_s)}, and are answered between two of them"
    if subject.estimates:
        starts += f" By the sums of fit its card holds {max(subject.estimates):,}."
    return f"{starts} {taken}, and five prompts each; {waits if service.queue_s else 'requests are refused meanwhile'}."


def probed_text(found: Probed, style: Style = PLAIN) -> str:
    """Each context that was tried, the shortest first, and the longest that answers with what to write."""
    rows = []
    for one in sorted(found.tries, key=lambda tried: tried.context):
        loaded = duration_text(one.load_s) if one.load_s else "-"
        sizes = [f"{size // MIB:,} MiB" if size >= 0 else "-" for size in (one.memory, one.card)]
        rows.append((f"{one.context:,}", one.outcome, loaded, duration_text(one.took_s), *sizes, safe_line(one.words)))
    option = found.subject.trial.option
    address = found.subject.service.address
    if found.longest:
        last = f"The longest that answers: {found.longest:,}. Write {option}: {found.longest} for {address}."
    else:
        last = f"None of them answers: {address} cannot be used with {found.subject.contexts.low:,} tokens."
    return f"{table(HEAD, rows, style)}\n\n{style.paint(last, 'bold')}"
