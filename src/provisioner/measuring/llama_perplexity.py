"""How llama-perplexity is asked what a quant has lost, and what it says. Pure.

Its parent writes how probable it holds each next token of a text to be into a file; the quant is held against that. It
ends well whatever happens: only figures that it says count, and it goes on where the vocabularies are not the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from provisioner.measuring.llama_bench import FLAGS, WORDS

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
HEAD = 20
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
    told = {"--threads": str(threads)} | dict(_told(served))
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
    return _whole_mib(chunks * (JUDGED * for_a_token + 4 * CONTEXT) + HEAD)


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


def _told(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What the server is told that llama-perplexity knows as well, by the same words; a flag has no value."""
    for number, word in enumerate(words):
        if word in FLAGS:
            yield word, ""
        elif word in WORDS and word not in ALONE and number + 1 < len(words):
            yield word, words[number + 1]
