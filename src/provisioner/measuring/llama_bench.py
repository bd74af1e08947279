"""How llama-bench is asked what an engine computes, and what its lines say. Pure.

It is started with the words of the engine's own command that it knows as well, so that it measures what serves: the
words that say how many tokens, and by whom it is asked, are the server's alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

WORDS: Mapping[str, str] = {
    "--model": "-m",
    "--batch-size": "-b",
    "--ubatch-size": "-ub",
    "--cache-type-k": "-ctk",
    "--cache-type-v": "-ctv",
    "--flash-attn": "-fa",
    "--gpu-layers": "-ngl",
    "--n-cpu-moe": "-ncmoe",
    "--load-mode": "-lm",
    "--device": "-dev",
    "--threads": "-t",
}
"""A word of llama-server that is followed by a value, and the one of llama-bench for the same."""
FLAGS: Mapping[str, tuple[str, str]] = {"--no-kv-offload": ("-nkvo", "1"), "--cpu-moe": ("-ncmoe", "999")}
"""Words of llama-server that stand alone; 999: more layers than any model has."""
EVERY_LAYER = "-1"
"""What llama-bench takes where llama-server is told ``auto`` or ``all``."""
SWEPT: Mapping[str, str] = {
    "batch": "-b",
    "ubatch": "-ub",
    "threads": "-t",
    "cache_k": "-ctk",
    "cache_v": "-ctv",
    "gpu_layers": "-ngl",
    "cpu_moe": "-ncmoe",
    "depth": "-d",
}
"""What may be swept, and its word."""
PROGRAM = "llama-bench"
UNCOUNTED = ("-m", "-r", "-o")
"""Words that decide about no figure: where the model lies, how often, and how it is told."""


class UnknownLineError(Exception):
    """A line is none that llama-bench writes."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What one line says: of reading a prompt or of writing, of so many tokens behind so many others."""

    is_prompt: bool
    tokens: int
    depth: int
    per_s: float

    @property
    def name(self) -> str:
        """As llama-bench's own table has it, such as ``pp512 @ d4096``."""
        behind = f" @ d{self.depth}" if self.depth else ""
        return f"{'pp' if self.is_prompt else 'tg'}{self.tokens}{behind}"


def command_of(served: Sequence[str], threads: int, tokens: tuple[int, int], changed: Mapping[str, str]) -> list[str]:
    """The command by which an engine is measured that is served by another one.

    ``served``: the command of llama-server; ``threads``: with how many where that does not say it; ``tokens``: of a
    prompt and of what is written; ``changed``: words of ``SWEPT`` with other values than it is served with. One trial
    and one before it that does not count.
    """
    program, *rest = served
    told = {"-t": str(threads)} | dict(_told(rest)) | {SWEPT[name]: value for name, value in changed.items()}
    read, written = tokens
    asked = {"-p": str(read), "-n": str(written), "-r": "1", "-o": "jsonl"}
    words = [word for pair in {**told, **asked}.items() for word in pair]
    return [f"{program.rpartition('/')[0]}/{PROGRAM}", *words]


def options_of(command: Sequence[str]) -> dict[str, str]:
    """What decides about its figures besides the model, by its own words without their dashes."""
    words = dict(zip(command[1::2], command[2::2], strict=True))
    return {word.lstrip("-"): value for word, value in words.items() if word not in UNCOUNTED}


def sweeps(values: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """Each combination of what is swept; one of nothing where nothing is."""
    for combination in product(*values.values()):
        yield dict(zip(values, combination, strict=True))


def figures(lines: Iterable[Any]) -> Iterator[Figure]:
    """What llama-bench has said, a line of JSON each; raises ``UnknownLineError`` where it says something else."""
    for line in lines:
        try:
            read, written, depth = (int(line[name]) for name in ("n_prompt", "n_gen", "n_depth"))
            (per_s,) = (float(one) for one in line["samples_ts"])
        except (KeyError, TypeError, ValueError) as error:
            raise UnknownLineError(f"llama-bench says no figure: {error!r}") from error
        if not (read > 0) ^ (written > 0) or not 0 < per_s < float("inf"):
            raise UnknownLineError(f"llama-bench measured nothing: {read} and {written} tokens, {per_s} a second")
        yield Figure(read > 0, read or written, depth, per_s)


def _told(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What the server is told that llama-bench knows; of words that are said twice the last counts, as there."""
    for number, word in enumerate(words):
        if word in FLAGS:
            yield FLAGS[word]
        elif word in WORDS and number + 1 < len(words):
            value = words[number + 1]
            is_layers = word == "--gpu-layers" and not value.isdecimal()
            yield WORDS[word], EVERY_LAYER if is_layers else value
