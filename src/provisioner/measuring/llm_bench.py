"""What clients of a service see: how long until its first token, how fast it reads, and how fast it writes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

from provisioner.measuring.history import Result
from provisioner.measuring.history import Setting as Where
from provisioner.measuring.llama_benchy import SUFFIX, Answered, Setting
from provisioner.measuring.series import SECONDS, Series, Trial

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
LONGEST_LOOK = 1000
"""Words of the text by which its tokens are counted, at most."""


class UncountedError(Exception):
    """A service does not say how long prompts are, or says what cannot be."""


@dataclass(frozen=True, slots=True)
class Length:
    """How long words are to a service: its tokens for one of them, and those that stand around each prompt."""

    per_word: float
    around: float

    def words(self, tokens: int) -> int:
        """How many words are so many tokens, at least one."""
        return max(round(tokens / self.per_word), 1)


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


def length_of(shorter: tuple[int, int], longer: tuple[int, int]) -> Length:
    """How long words are, by two texts: how many words and tokens each of them has.

    Raises ``UncountedError`` where the longer one has no more tokens.
    """
    (few, few_tokens), (many, many_tokens) = shorter, longer
    if many_tokens <= few_tokens:
        raise UncountedError(f"it counts {few_tokens} tokens in {few} words, and {many_tokens} in {many}")
    per_word = (many_tokens - few_tokens) / (many - few)
    return Length(per_word, few_tokens - few * per_word)


def tokens_in(answer: Any) -> int:
    """How many tokens a prompt had, as an answer of ``/v1/chat/completions`` says; else ``UncountedError``."""
    try:
        tokens = answer["usage"]["prompt_tokens"]
    except (TypeError, KeyError):
        tokens = None
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens <= 0:
        raise UncountedError("its answer does not say how many tokens the prompt had")
    return tokens


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
