"""How llama-benchy is asked what clients of a service see, and what its progress says. Pure.

It takes texts from a book that it keeps, and counts them by a tokenizer of its own. Both are given: a book of words
that stand alone, and a tokenizer to which each of them is one token, so that it needs nothing of the model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.measuring.filler import WORDS
from provisioner.values.plain_data import json_value

TOOL, MODULE = "llama-benchy", "llama_benchy"
START = "import json, runpy, sys; sys.argv = json.load(sys.stdin); runpy.run_module(sys.argv[0], run_name='__main__')"
"""It is told its words by its standard input: others see what a command line says."""
SCHEMA = "llama-benchy-progress.v1"
BOOK_URL = "http://127.0.0.1/book"
"""Never asked: what is kept of it is in the cache before."""
UNKNOWN_WORD = "[UNK]"
SUFFIX = 1
"""Words that it adds to each prompt, so that none is like another: an identifier."""
BURST, FEW = 2, 8
"""An answer of ``FEW`` tokens and more that came in ``BURST`` pieces or fewer was not streamed."""


class UnknownProgressError(Exception):
    """A line is none that llama-benchy writes."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What it is asked: words of the context before a prompt, words of that, tokens that are written."""

    context: int
    prompt: int
    written: int


@dataclass(frozen=True, slots=True)
class Answered:
    """One request: its setting, which of that it was, seconds to its first token and from there to its end.

    ``prompt`` and ``tokens``: tokens, as the service counts them; ``pieces``: in how many it came; ``error``: what was
    wrong, empty where nothing was.
    """

    setting: Setting
    number: int
    first_s: float
    rest_s: float
    prompt: int
    tokens: int
    pieces: int
    error: str

    @property
    def was_streamed(self) -> bool:
        """Whether it came bit by bit, as far as that can be told."""
        return self.tokens < FEW or self.pieces > BURST

    @property
    def whole_s(self) -> float:
        """Seconds to its end."""
        return self.first_s + self.rest_s


def command(url: str, model: str, settings: Sequence[Setting], runs: int, *, is_exact: bool, folder: str) -> list[str]:
    """The words by which it measures settings that differ in their context alone, each ``runs`` times.

    ``is_exact``: whether services are told not to end earlier, which those that are not ours may refuse; ``folder``:
    where its tokenizer lies.
    """
    first = settings[0]
    told = {"--base-url": f"{url}/v1", "--model": model, "--tokenizer": folder, "--book-url": BOOK_URL}
    counts = {"--pp": first.prompt, "--tg": first.written, "--runs": runs}
    words = [MODULE, *(str(word) for pair in {**told, **counts}.items() for word in pair)]
    words += ["--depth", *(str(one.context) for one in settings)]
    words += ["--no-cache", "--no-warmup", "--no-adapt-prompt", "--skip-coherence", "--exit-on-first-fail"]
    words += ["--latency-mode", "none", "--emit-progress", "-"]
    return [*words, "--exact-tg"] if is_exact else words


def book_file() -> str:
    """Where it looks for the book, below its home."""
    name = hashlib.md5(BOOK_URL.encode(), usedforsecurity=False).hexdigest()
    return f".cache/llama-benchy/{name}.txt"


def tokenizer_text() -> str:
    """A ``tokenizer.json`` to which each word of ``filler`` is one token."""
    vocabulary = {word: number for number, word in enumerate((UNKNOWN_WORD, *WORDS))}
    absent = ("truncation", "padding", "normalizer", "post_processor", "decoder")
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": UNKNOWN_WORD}
    pieces = {"type": "WhitespaceSplit"}
    return json.dumps(
        {"version": "1.0", "added_tokens": [], "pre_tokenizer": pieces, "model": model, **dict.fromkeys(absent)}
    )


class Progress:
    """What its lines have said so far."""

    def __init__(self) -> None:
        self._asked: dict[int, Mapping[str, Any]] = {}
        self._first: dict[int, float] = {}
        self._pieces: dict[int, int] = {}

    def read(self, line: str) -> Answered | None:
        """Take one more line; the request that it says has ended. ``UnknownProgressError`` where it is none of its."""
        try:
            return self._read(json_value(line))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UnknownProgressError(f"llama-benchy says what it does not say: {error!r}") from error

    @property
    def is_answered(self) -> bool:
        """Whether the first token of a request has come."""
        return bool(self._first)

    def _read(self, said: Any) -> Answered | None:
        if said["schema"] != SCHEMA:
            raise ValueError(f"schema {said['schema']!r}")
        kind = said["type"]
        if kind == "request_start":
            self._asked[said["request_id"]] = said
        elif kind == "request_first_token":
            self._first[said["request_id"]] = float(said["ttft_s"])
        elif kind == "tokens":
            self._pieces[said["request_id"]] = self._pieces.get(said["request_id"], 0) + 1
        elif kind == "request_end":
            return self._ended(said)
        return None

    def _ended(self, said: Mapping[str, Any]) -> Answered:
        number = said["request_id"]
        asked = self._asked.pop(number)
        return Answered(
            Setting(int(asked["context_size"]), int(asked["prompt_size"]), int(asked["response_size"])),
            number=int(asked["run_index"]),
            first_s=self._first.get(number, 0.0),
            rest_s=float(said["decode_seconds"]),
            prompt=int(said["prompt_tokens"]),
            tokens=int(said["total_tokens"]),
            pieces=self._pieces.get(number, 0),
            error=str(said["error"]),
        )


def answered_in(lines: Iterable[str]) -> Iterator[Answered]:
    """All requests of which lines say that they have ended."""
    progress = Progress()
    for line in lines:
        if ended := progress.read(line):
            yield ended
