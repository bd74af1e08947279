"""``bench --kind llm``: what clients of a service see, by llama-benchy, which asks it from this machine."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

from provisioner.measuring.endpoints import (
    LONGEST_ANSWER_S,
    WORDS,
    Endpoint,
    Forwarder,
    Length,
    Load,
    UncountedError,
    failed,
    filler,
    forwarding,
    length_of_words,
)
from provisioner.measuring.history import BUDGET_S, SECONDS, SPREAD_S, Result, Series, Trial, trials_within
from provisioner.measuring.history import Setting as Where
from provisioner.measuring.tools import ToolError, lines_of, python_of
from provisioner.report.style import count_text, duration_text
from provisioner.values.errors import InputError, PreflightError, ProviderError
from provisioner.values.events import ApplyProgress, Diagnostic, Event
from provisioner.values.plain_data import json_value

# The words of llama-benchy, by which it is asked what clients of a service see, and what its progress says.
#
# It takes texts from a book that it keeps, and counts them by a tokenizer of its own. Both are given: a book of words
# that stand alone, and a tokenizer to which each of them is one token, so that it needs nothing of the model.

TOOL, MODULE = "llama-benchy", "llama_benchy"
START = "import json, runpy, sys; sys.argv = json.load(sys.stdin); runpy.run_module(sys.argv[0], run_name='__main__')"
"""It is told its words by its standard input: others see what a command line says."""
SCHEMA = "llama-benchy-progress.v1"
BOOK_URL = "http://127.0.0.1/book"
"""Never asked: what is kept of it is in the cache before."""
UNKNOWN_WORD = "[UNK]"
SUFFIX = 1
"""Words that it adds to each prompt, so that none is like another: an identifier."""
BURST, UNSTREAMED = 2, 8
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
        return self.tokens < UNSTREAMED or self.pieces > BURST

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


# Depths, and what clients of a service see at each: how long until its first token, how fast it reads and writes.

KIND = "llm"
PER_S = "tokens/s"
ROUNDS = 5
"""As many starts of the tool, in each of which all depths are measured one after the other."""
NEAR, FEW = 0.05, 16
"""By which part, or by how many tokens, a prompt may be longer or shorter than it is called."""
CHANCE = 1.5
"""By as many times the tokens of a word, and the root of their number, texts of as many words may differ besides."""
IDENTIFIER, LESS = 36, 0.97
"""Tokens of what is added to each prompt, at most; and first prompts are shorter than asked: none may be too long."""
MARGIN = 0.02
"""By which part a prompt may be longer than it is called, as words differ."""
MOST_WORDS = 2_000_000


@dataclass(slots=True)
class Depth:
    """Prompts of ``read`` tokens behind ``depth`` others, ``written`` as answer, and what was measured with them."""

    depth: int
    read: int
    written: int
    setting: Setting = field(default_factory=lambda: Setting(0, 1, 1))
    cold: Answered | None = None
    """The first one, which counts for nothing else."""
    trials: list[tuple[Answered, float]] = field(default_factory=list)
    """Each with the part of its time in which something waited for a processor."""

    @property
    def prompt(self) -> int:
        """Tokens that the service reads."""
        return self.depth + self.read

    def doubts(self, answered: Answered) -> Iterator[str]:
        """Why an answer is not that of the prompt that was sent."""
        if answered.error:
            yield answered.error
        elif not answered.tokens:
            yield "an empty answer"
        elif answered.first_s <= 0 or (answered.was_streamed and answered.tokens > 1 and answered.rest_s <= 0):
            yield "it told no moment of its first token"
        elif abs(answered.prompt - self.prompt) > self.slack:
            yield f"it counted {answered.prompt} tokens of a prompt of {self.prompt}"

    @property
    def slack(self) -> float:
        """By how many tokens a prompt may be longer or shorter than it is called, as words differ by chance."""
        words = self.setting.context + self.setting.prompt
        return max(NEAR * self.prompt, FEW, CHANCE * self.prompt / sqrt(words))

    @property
    def longest(self) -> int:
        """Tokens of the longest request that may be made for it, with its answer."""
        return round(self.prompt + max(self.prompt * MARGIN, FEW)) + self.written

    @property
    def was_streamed(self) -> bool:
        """Whether all of its answers came bit by bit."""
        return all(one.was_streamed for one, _ in self.trials)

    def options(self, model: str) -> dict[str, str]:
        """What decides about its figures besides the service."""
        return {"model": model, "p": str(self.read), "n": str(self.written), "d": str(self.depth)}

    def series(self) -> Iterator[Series]:
        """Its figures; of answers that came in one piece only how long they took."""
        behind = f" @ d{self.depth}" if self.depth else ""
        if not self.was_streamed:
            whole = tuple(Trial(one.whole_s, waited) for one, waited in self.trials)
            yield Series(f"whole answer{behind}", SECONDS, whole)
            return
        first, reading, writing = list[Trial](), list[Trial](), list[Trial]()
        for one, waited in self.trials:
            first.append(Trial(one.first_s, waited))
            reading.append(Trial(reading_per_s(one), waited))
            if one.tokens > 1:
                writing.append(Trial(writing_per_s(one), waited))
        yield Series(f"first token{behind}", SECONDS, tuple(first))
        yield Series(f"pp{self.read}{behind}", PER_S, tuple(reading))
        if writing:
            yield Series(f"tg{self.written}{behind}", PER_S, tuple(writing))

    def result(self, at: str, service: str, where: Where) -> Result:
        """What was measured, and the first time apart."""
        return Result(at, KIND, service, where, tuple(self.series()), cold=self._cold())

    def _cold(self) -> dict[str, float]:
        if self.cold is None:
            return {}
        told = {"first token": self.cold.first_s, "whole answer": self.cold.whole_s}
        return {name: round(value, 6) for name, value in told.items()}


def fit(depths: Sequence[Depth], length: Length) -> None:
    """Have each prompt nearly as many words as it has tokens; those of the prompt itself are the same at each depth."""
    prompt = max(length.words(max(round(depths[0].read - length.around - IDENTIFIER), 1)), 1 + SUFFIX)
    for one in depths:
        one.setting = Setting(length.words(round(one.depth * LESS)) if one.depth else 0, prompt, one.written)
    _check_apart(depths)


def fit_by_answers(depths: Sequence[Depth]) -> None:
    """Have each prompt so many words more or less as the service has counted tokens too few or too many."""
    wanted: dict[int, int] = {}
    for one in depths:
        if one.cold is not None:
            words = one.cold.setting.context + one.cold.setting.prompt
            wanted[one.depth] = round(words * one.prompt / max(one.cold.prompt, 1))
    prompt = max(wanted.get(0, depths[0].setting.prompt), 1 + SUFFIX)
    for one in depths:
        context = max(wanted.get(one.depth, 0) - prompt, 1) if one.depth else 0
        one.setting = Setting(context, prompt, one.written)
    _check_apart(depths)


def _check_apart(depths: Sequence[Depth]) -> None:
    """Raise ``UncountedError`` where two depths are the same number of words."""
    if len({one.setting.context for one in depths}) != len(depths):
        raise UncountedError(f"depths {', '.join(str(one.depth) for one in depths)} are too near to each other")


def depth_of(depths: Sequence[Depth], answered: Answered) -> Depth:
    """Of which depth that is an answer; ``UncountedError`` where of none."""
    for one in depths:
        if one.setting == answered.setting:
            return one
    raise UncountedError(f"an answer to what was not asked: {answered.setting}")


def reading_per_s(answered: Answered) -> float:
    """Tokens of the prompt in a second until its first token came."""
    return answered.prompt / answered.first_s


def writing_per_s(answered: Answered) -> float:
    """Tokens of the answer in a second after its first one."""
    return (answered.tokens - 1) / answered.rest_s


def rounds_of(trials: int) -> list[int]:
    """How many trials each start of the tool makes: as even as they go."""
    rounds = min(ROUNDS, trials)
    return [trials // rounds + (number < trials % rounds) for number in range(rounds)]


def most_tokens(depths: Sequence[Depth], trials: int) -> Mapping[str, int]:
    """About how many requests are made, and how many tokens those read and write, with a first turn and counting."""
    turns = trials + 1 + ROUNDS
    return {
        "requests": turns * len(depths),
        "read": turns * sum(one.prompt for one in depths),
        "written": turns * sum(one.written for one in depths),
    }


def check_context(endpoint: Endpoint, depths: Sequence[Depth]) -> None:
    """Raise ``InputError`` where a request would be longer than the service takes."""
    longest = max(one.longest for one in depths)
    if endpoint.context is not None and longest > endpoint.context:
        raise InputError(
            f"Unable to measure {endpoint.name}: a request may have {longest} tokens, and it takes {endpoint.context}",
            resolution="Say less with --depth or --tokens, or write a longer context.",
        )


# The measurement: in turns, spread over the time; those in which others ask, too, are made again.

BOOKS = 4
"""The book is so many times as long as the longest prompt: each begins somewhere else."""
LEAST_BOOK = 20_000
SPARE = 2
"""So many more starts are made in the place of those in which others asked the service, too."""


class _Bench:
    """One run: from counting how long words are to the last trial."""

    def __init__(
        self, endpoint: Endpoint, depths: Sequence[Depth], forwarder: Forwarder, python: Path, folder: Path
    ) -> None:
        self.endpoint, self.depths = endpoint, depths
        self.forwarder, self.python, self.folder = forwarder, python, folder

    def prepare(self) -> None:
        """Take as many words as there are tokens, and write the book and the tokenizer."""
        length = length_of_words(self.endpoint, self.forwarder, min(one.prompt for one in self.depths))
        try:
            fit(self.depths, length)
        except UncountedError as error:
            raise failed(self.endpoint, str(error)) from error
        most = max(one.setting.context + one.setting.prompt for one in self.depths)
        if most > MOST_WORDS:
            raise PreflightError(f"Unable to measure {self.endpoint.name}: that are {most} words, too many to be sent")
        book = self.folder / book_file()
        book.parent.mkdir(parents=True)
        book.write_text(filler(max(BOOKS * most, LEAST_BOOK), secrets.randbits(32)), encoding="ascii")
        (self.folder / "tokenizer.json").write_text(tokenizer_text(), encoding="ascii")

    def answers(self, runs: int, first: Callable[[], None] | None = None) -> Iterator[Answered]:
        """What each depth was answered, so often; ``first`` is called when the first answer begins."""
        settings = [one.setting for one in self.depths]
        words = command(
            self.forwarder.url,
            self.endpoint.model,
            settings,
            runs,
            is_exact=self.endpoint.is_ours,
            folder=str(self.folder),
        )
        progress = Progress()
        within_s = LONGEST_ANSWER_S * runs * len(settings)
        try:
            with closing(lines_of(self.python, START, words, self.folder, within_s)) as lines:
                for line in lines:
                    ended = progress.read(line)
                    if first is not None and progress.is_answered:
                        first()
                        first = None
                    if ended is not None:
                        yield ended
        except (ToolError, UnknownProgressError, UncountedError) as error:
            raise ProviderError(f"Unable to measure {self.endpoint.name}: {TOOL} failed", details=str(error)) from error

    def checked(self, answered: Answered) -> Depth:
        """The depth of which that is a trial; raises ``VerificationError`` where it is none of its prompt."""
        depth = depth_of(self.depths, answered)
        for doubt in depth.doubts(answered):
            raise failed(self.endpoint, doubt)
        return depth


def measure_llm(
    endpoint: Endpoint, depths: Sequence[Depth], trials: int, emit: Callable[[Event], None]
) -> tuple[Result, ...]:
    """What clients see at each depth, measured in turns.

    A first turn is kept apart. ``trials``: how many follow; 0: as many as fit into the time that they may take. Raises
    ``VerificationError`` where it does not answer as it is asked, ``PreflightError`` where others ask it, too.
    """
    python = python_of(TOOL, emit)
    with TemporaryDirectory(prefix="provision-bench-") as folder, forwarding(endpoint.target) as forwarder:
        bench = _Bench(endpoint, depths, forwarder, python, Path(folder))
        emit(ApplyProgress(endpoint.name, "counting how many tokens a text has there"))
        bench.prepare()
        emit(ApplyProgress(endpoint.name, "a first turn, which is kept apart"))
        turn_s = _cold(bench)
        _trials(bench, trials or trials_within(turn_s), emit)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return tuple(one.result(at, endpoint.name, endpoint.measured_with(one.options(endpoint.model))) for one in depths)


def _cold(bench: _Bench) -> float:
    """Measure each depth once, and take as many words from then on as the service has counted tokens; seconds."""
    took_s = 0.0
    for answered in bench.answers(1):
        depth = depth_of(bench.depths, answered)
        if answered.error or not answered.tokens:
            bench.checked(answered)
        depth.cold = answered
        took_s += answered.whole_s
    untold = [one.depth for one in bench.depths if one.cold is None]
    if untold:
        raise ProviderError(f"Unable to measure {bench.endpoint.name}: {TOOL} told nothing of depth {untold[0]}")
    fit_by_answers(bench.depths)
    return took_s


def _trials(bench: _Bench, wanted: int, emit: Callable[[Event], None]) -> None:
    """Measure in several starts, spread over the time; those in which others ask, too, are made again."""
    began, done, lost = monotonic(), 0, 0
    plan = rounds_of(wanted)
    while plan:
        runs = plan.pop(0)
        sleep(max(began + done * SPREAD_S - monotonic(), 0.0))
        text = f"trials {done + 1} to {done + runs} of {wanted}"
        emit(ApplyProgress(bench.endpoint.name, text, goes_on=done > 0))
        found, others = _round(bench, runs)
        if others > 0:
            lost += 1
            emit(Diagnostic("warning", f"{others} requests of others came meanwhile: these trials count for nothing"))
            if lost > SPARE:
                raise PreflightError(
                    f"Unable to measure {bench.endpoint.name}: others ask it meanwhile",
                    details=f"In {lost} of {lost + len(rounds_of(wanted)) - len(plan) - 1} starts. Nothing is kept.",
                    resolution="Measure when nobody asks it.",
                )
            plan.insert(0, runs)
            continue
        for depth, trial in found:
            depth.trials.append(trial)
        done += runs


def _round(bench: _Bench, runs: int) -> tuple[list[tuple[Depth, tuple[Answered, float]]], int]:
    """One start of the tool, whose first trial of each depth counts for nothing; how many requests of others came."""
    loads: list[tuple[Load, int]] = []

    def first() -> None:
        before = bench.forwarder.prompts  # before the look, which takes a while: else our own next one were another's
        loads.append((bench.endpoint.look(), before))

    answers = [(bench.checked(one), one) for one in bench.answers(runs + 1, first)]
    expected = (runs + 1) * len(bench.depths)
    if len(answers) != expected or not loads:
        raise ProviderError(
            f"Unable to measure {bench.endpoint.name}: {TOOL} told of {len(answers)} requests, and made {expected}"
        )
    load, before = loads[0]
    waited, others = load.share_until_now(bench.forwarder.prompts - before)
    found = []
    for depth, one in answers:
        if one.number:
            found.append((depth, (one, waited)))
    return found, others


def foretold_text(name: str, depths: Sequence[Depth], trials: int, *, costs: bool) -> str:
    """How long it takes, or how many tokens are read and written by something that may cost money."""
    behind = f" at each of {count_text(len(depths), 'depth')}" if len(depths) > 1 else ""
    if not trials:
        return f"{name} is asked by llama-benchy for about {duration_text(BUDGET_S)}{behind}; nobody else may ask it."
    asked = f"{name} is asked by llama-benchy, {count_text(trials, 'trial')}{behind}"
    if not costs:
        return f"{asked}; nobody else may ask it."
    told = most_tokens(depths, trials)
    return (
        f"{asked}: {told['requests']} requests with about {told['read']:,} tokens together, answered with up to "
        f"{told['written']:,}. What that costs, its provider says."
    )
