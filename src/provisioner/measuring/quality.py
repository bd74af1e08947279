"""``bench --kind quality``: what a quant has lost against its parent, by llama-perplexity in the engine's container."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from provisioner.inside import engine_bench
from provisioner.inside.answers import bench_answer
from provisioner.inside.engine_bench import FOLDER, STATE, TEXT
from provisioner.inside.trial_unit import ANSWERED, HUNG, OUTCOMES
from provisioner.lab.opening import Lab
from provisioner.loads.weighing import FLOOR, FLOOR_BITS
from provisioner.measuring.engine import FLAGS, WORDS, Served, question, served_there
from provisioner.measuring.history import Result, Series, Setting, Trial, file_of, keep
from provisioner.measuring.pause import (
    SPARE_S,
    Engine,
    asked_there,
    check_alone,
    engine_named,
    look_at,
    pause,
    say,
    serve_who_waits,
    serving_again,
)
from provisioner.models.header import Header
from provisioner.reconcile.effects import Effects
from provisioner.report.style import PLAIN, Style, count_text, duration_text, safe_line, table
from provisioner.services import knowledge_of
from provisioner.services.base import EngineBench, ResolvedService
from provisioner.values.errors import InputError, PreflightError, VerificationError
from provisioner.values.quantities import size_text

# The words of llama-perplexity, by which it is asked what a quant has lost, and what it says.
#
# Its parent writes how probable it holds each next token of a text to be into a file; the quant is held against that.
# The program ends well whatever happens: only figures that it says count, and it goes on where the vocabularies are not
# the same.

PROGRAM = "llama-perplexity"
CONTEXT = 512
"""Tokens of a chunk, of which the second half is judged (as everybody who publishes such figures has it)."""
JUDGED = CONTEXT - 1 - CONTEXT // 2
LEAST_JUDGED = 100
"""It tells no figure of fewer tokens."""
ALONE = frozenset({"--model", "--batch-size", "--ubatch-size"})
"""Words of the engine that have another value here."""
OTHER_VOCABULARY = "inconsistent vocabulary"
TOO_SHORT = "tokenizes to only"
FILE_HEAD = 20
"""Bytes before what its parent holds."""
MIB = 2**20
_NUMBER = r"(-?[0-9]+(?:\.[0-9]+)?)"
FIGURES: Mapping[str, re.Pattern[str]] = {
    "mean": re.compile(rf"^Mean +KLD: +{_NUMBER} "),
    "median": re.compile(rf"^Median +KLD: +{_NUMBER}$"),
    "worst_percent": re.compile(rf"^99\.0% +KLD: +{_NUMBER}$"),
    "same_top": re.compile(rf"^Same top p: +{_NUMBER} "),
    "perplexity": re.compile(rf"^Mean PPL\(Q\) +: +{_NUMBER} "),
    "of_parent": re.compile(rf"^Mean PPL\(base\) +: +{_NUMBER} "),
}
"""The lines that say what is kept."""
PARENT = re.compile(rf"Final estimate: PPL = {_NUMBER} ")
"""Behind a moment of its log."""


class NoFigureError(Exception):
    """It did not say what it was asked; the text says what it said instead."""


@dataclass(frozen=True, slots=True)
class Quality:
    """How far a quant's answers are from its parent's.

    ``mean``, ``median`` and ``worst_percent`` (only one of a hundred tokens is worse): the Kullback-Leibler divergence
    in nats; ``same_top``: percent of the tokens of which both hold the same one to be the most probable; ``perplexity``
    of the quant and ``of_parent``.
    """

    mean: float
    median: float
    worst_percent: float
    same_top: float
    perplexity: float
    of_parent: float


def command(folder: str, served: Sequence[str], threads: int, model: str, more: Sequence[str]) -> list[str]:
    """The command by which a model is judged with the words that its engine is served with.

    ``folder``: where its program lies; ``threads``: with how many where those words do not say it.
    """
    told = {"--threads": str(threads)} | dict(_arguments_for(served))
    sizes = {"--model": model, "--ctx-size": str(CONTEXT), "--batch-size": str(CONTEXT), "--ubatch-size": str(CONTEXT)}
    words = [word for name, value in {**told, **sizes}.items() for word in ((name, value) if value else (name,))]
    return [f"{folder}/{PROGRAM}", *words, *more]


def base_words(text: str, chunks: int, logits: str) -> list[str]:
    """What its parent is asked: to read so many chunks of a text, and to write down what it holds of them."""
    return ["--file", text, "--chunks", str(chunks), "--kl-divergence-base", logits]


def judging_words(logits: str) -> list[str]:
    """What the quant is asked: to be held against that."""
    return ["--kl-divergence", "--kl-divergence-base", logits]


def logits_bytes(vocabulary: int, chunks: int) -> int:
    """How long the file is: two bytes for each item of the vocabulary, rounded up, and four more for each token."""
    for_a_token = 2 * (2 * ((vocabulary + 1) // 2) + 4)
    return _whole_mib(chunks * (JUDGED * for_a_token + 4 * CONTEXT) + FILE_HEAD)


def memory_bytes(vocabulary: int) -> int:
    """What it keeps of one chunk in memory besides the model: four bytes twice for each item and token."""
    return _whole_mib(2 * 4 * vocabulary * CONTEXT)


def _whole_mib(size: int) -> int:
    return -(-size // MIB) * MIB


def quality_in(lines: Iterable[str]) -> Quality:
    """What the quant has lost; raises ``NoFigureError`` where it does not say all of it, or of something else."""
    said = list(lines)
    _check(said)
    found = {name: _value(pattern, said) for name, pattern in FIGURES.items()}
    missing = [name for name, value in found.items() if value is None]
    if missing:
        raise NoFigureError(f"{PROGRAM} does not say {', '.join(missing)}: {_last(said)}")
    return Quality(**{name: value for name, value in found.items() if value is not None})


def perplexity_in(lines: Iterable[str]) -> float:
    """The parent's perplexity, with which it says that it has read the whole text; ``NoFigureError``, else."""
    said = list(lines)
    _check(said)
    found = _value(PARENT, said)
    if found is None:
        raise NoFigureError(f"{PROGRAM} has not come to the end: {_last(said)}")
    return found


def _check(said: Sequence[str]) -> None:
    for line in said:
        if OTHER_VOCABULARY in line or TOO_SHORT in line:
            raise NoFigureError(line.strip())


def _value(pattern: re.Pattern[str], said: Sequence[str]) -> float | None:
    found = [match for line in said if (match := pattern.search(line.strip()))]
    return float(found[-1][1]) if found else None


def _last(said: Sequence[str]) -> str:
    words = [line.strip() for line in said if line.strip()]
    return words[-1] if words else "nothing"


def _arguments_for(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What the server is told that llama-perplexity knows as well, by the same words; a flag has no value."""
    for number, word in enumerate(words):
        if word in FLAGS:
            yield word, ""
        elif word in WORDS and word not in ALONE and number + 1 < len(words):
            yield word, words[number + 1]


# Quants and their parent: what their container is asked, and what is kept of them.

KIND = "quality"
LOGITS = str(STATE / FOLDER / "logits")
CHUNKS = 32
UNITS = {
    "mean": "nats",
    "median": "nats",
    "worst_percent": "nats",
    "same_top": "%",
    "perplexity": "",
    "of_parent": "",
}
PARTED = 0.2
"""A median divergence from which on two models no longer say the same (nats)."""
NAME = 16
"""Digits of a digest by which options name something."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A model of an engine: how people call it, where its file lies in the container, and what that says of itself."""

    name: str
    path: str
    header: Header
    digest: str


@dataclass(frozen=True, slots=True)
class Subject(Engine):
    """An engine with a parent and its quants, in which these are judged."""

    bench: EngineBench
    served: Served
    parent: Judged
    quants: tuple[Judged, ...]

    @property
    def programs(self) -> str:
        """The folder of its programs."""
        return self.served.words[0].rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Reading:
    """What models read: a text, and so many chunks of it."""

    text: str
    chunks: int


def base_question(subject: Subject, reading: Reading, within_s: float) -> dict[str, Any]:
    """What the container is asked first: what its parent holds of the text, written into a file."""
    more = base_words(str(TEXT), reading.chunks, LOGITS)
    most = logits_bytes(subject.parent.header.tokens, reading.chunks)
    return {**_question(subject, subject.parent, more, within_s), "text": reading.text, "most_bytes": most}


def judging_question(subject: Subject, quant: Judged, within_s: float) -> dict[str, Any]:
    """What it is asked then: how far a quant is from that."""
    return {**_question(subject, quant, judging_words(LOGITS), within_s), "text": "", "most_bytes": 1}


def _question(subject: Subject, model: Judged, more: Sequence[str], within_s: float) -> dict[str, Any]:
    served = subject.served
    words = command(subject.programs, served.words[1:], served.threads, model.path, more)
    return {**question(subject, subject.bench, words, within_s), "begins": ""}


def result_of(subject: Subject, quant: Judged, quality: Quality, reading: Reading, at: str) -> Result:
    """What is kept of one quant."""
    served = subject.served
    options = {
        "model": quant.name,
        "parent": subject.parent.digest[:NAME],
        "text": hashlib.sha256(reading.text.encode()).hexdigest()[:NAME],
        "chunks": str(reading.chunks),
        "c": str(CONTEXT),
    }
    processor = f"{served.processor}, {served.threads} of them"
    where = Setting(subject.instance.host, processor, served.card, served.driver, served.build, quant.digest, options)
    series = tuple(Series(name, unit, (Trial(getattr(quality, name)),)) for name, unit in UNITS.items())
    return Result(at, KIND, str(subject.service.address), where, series)


def warnings(quant: Judged, quality: Quality) -> Iterator[str]:
    """What whoever serves it should know."""
    figures = f"median {quality.median:.3f}, the same token in {quality.same_top:.1f} % of all cases"
    if quality.median >= PARTED:
        yield f"{quant.name} no longer says what its parent says: {figures}"
    elif 0 < quant.header.bits < FLOOR_BITS:
        yield f"{quant.name} has {quant.header.bits:.2f} bits a weight, fewer than {FLOOR}: {figures}"


def unlike(parent: Judged, quant: Judged) -> str:
    """Why a model cannot be held against that parent; empty where nothing is known that is in the way."""
    for name, said in _told(quant).items():
        if said != _told(parent)[name]:
            return f"{name} {said}, and {parent.name} has {_told(parent)[name]}"
    return ""


def _told(model: Judged) -> Mapping[str, Any]:
    header = model.header
    return {"architecture": header.architecture, "layers": header.layers, "items of its vocabulary": header.tokens}


# The measurement, in the container of the models, with their engine stopped.

VERB = "bench"
LONGEST_S = 4 * 3600.0
"""So long one model may read."""
IN_TIME = "The engine serves as before. Say fewer --chunks, or --refuse where requests need not wait for it."
NO_ROOM = "The engine serves as before. A model that has no room on a card needs fewer gpu_layers."
SPARE_DISK = 2**28
"""Bytes of the container's disk that are left for everybody else."""


def subject_of(lab: Lab, effects: Effects, name: str, parent: str) -> Subject:
    """The engine of that name with its parent and its quants; raises ``InputError`` where they cannot be judged."""
    service = engine_named(lab.resolved, name, VERB)
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
        perplexity_of(subject.parent, _lines_said(subject, subject.parent, asked, effects))
        for quant in subject.quants:
            lease.check()
            said = _lines_said(subject, quant, judging_question(subject, quant, within_s), effects)
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


def _lines_said(subject: Subject, model: Judged, asked: Mapping[str, Any], effects: Effects) -> list[str]:
    """What llama-perplexity says of a model."""
    serve_who_waits(subject, effects)
    pause(subject, effects, LONGEST_S + 2 * SPARE_S)
    say(subject, f"{model.name} reads the text", effects)
    check = partial(bench_answer, outcomes=OUTCOMES)
    said = asked_there(subject, engine_bench, asked, check, effects, within_s=LONGEST_S + 2 * SPARE_S)
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


# Results as text and as values.

HEAD = ("MODEL", "BITS", "MEAN KLD", "MEDIAN", "99 %", "SAME TOKEN", "PERPLEXITY")

Found = Sequence[tuple[Judged, Quality]]


def foretold_text(subject: Subject, chunks: int) -> str:
    """What is about to be stopped, and what that takes."""
    service = subject.service
    names = ", ".join(safe_line(one.name) for one in subject.quants)
    waits = f"requests wait for up to {duration_text(service.queue_s)}, and are answered between two models"
    return (
        f"{service.address} is stopped while {safe_line(subject.parent.name)} and then {names} read "
        f"{count_text(chunks, 'chunk')} of {CONTEXT} tokens; "
        f"{waits if service.queue_s else 'requests are refused meanwhile'}. "
        f"{size_text(logits_bytes(subject.parent.header.tokens, chunks))} of disk are needed until it ends."
    )


def quality_text(subject: Subject, found: Found, style: Style = PLAIN) -> str:
    """A line for each quant, that of their parent, and what whoever serves them should know."""
    rows = [
        (
            safe_line(quant.name),
            bits_text(quant),
            f"{quality.mean:.4f}",
            f"{quality.median:.4f}",
            f"{quality.worst_percent:.3f}",
            f"{quality.same_top:.1f} %",
            f"{quality.perplexity:.3f}",
        )
        for quant, quality in found
    ]
    nothing = ("", "", "", "")
    rows.append((safe_line(subject.parent.name), bits_text(subject.parent), *nothing, f"{found[0][1].of_parent:.3f}"))
    lines = [table(HEAD, rows, style)]
    told = [safe_line(line) for one in found for line in warnings(*one)]
    return "\n".join([*lines, *([""] if told else []), *told])


def quality_content(subject: Subject, found: Found) -> dict[str, Any]:
    """All of it as values."""
    quants = [
        {"model": quant.name, "bits": quant.header.bits, **asdict(quality), "warnings": list(warnings(quant, quality))}
        for quant, quality in found
    ]
    return {"parent": subject.parent.name, "quants": quants}


def bits_text(model: Judged) -> str:
    """Bits of a weight."""
    return f"{model.header.bits:.2f}" if model.header.bits else "not told"
