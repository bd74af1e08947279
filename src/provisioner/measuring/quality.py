"""What a quant has lost against its parent: what is judged, what that takes, and what is kept of it. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.bench_in_container import FOLDER, STATE, TEXT
from provisioner.loads.weights import FLOOR, FLOOR_BITS
from provisioner.measuring.engine_bench import Served, question
from provisioner.measuring.engines import Engine
from provisioner.measuring.history import Result, Setting
from provisioner.measuring.llama_perplexity import (
    CONTEXT,
    Quality,
    base_words,
    command,
    judging_words,
    logits_bytes,
)
from provisioner.measuring.series import Series, Trial
from provisioner.models.header import Header
from provisioner.services.base import EngineBench

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
