"""``bench --kind load``: what many clients of a service see at once, by guidellm, which asks it from this machine."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from provisioner.measuring.endpoints import (
    Endpoint,
    Forwarder,
    failed,
    filler,
    forwarding,
    length_of_words,
    tokens_of_words,
)
from provisioner.measuring.engine import number_text
from provisioner.measuring.history import SECONDS, Result, Series, Setting, Trial
from provisioner.measuring.llm import START, tokenizer_text
from provisioner.measuring.tools import ToolError, lines_of, python_of
from provisioner.report.style import PLAIN, Style, duration_text, safe_line, table
from provisioner.values.errors import PreflightError, ProviderError
from provisioner.values.events import ApplyProgress, Event
from provisioner.values.plain_data import json_value
from provisioner.values.regular_files import content_of

# The file by which guidellm is asked what many clients of a service see at once, and what its report says.
#
# It is told by a file, and not by its command line, which others see; its prompts are texts of ours, so that it needs
# nothing of the model.

TOOL, MODULE = "guidellm", "guidellm"
ASKED, PROMPTS, TOKENIZER, REPORT = "asked.json", "prompts.jsonl", "tokenizer", "report.json"
"""Files in its folder."""
MILLI = 1000.0


class UnknownReportError(Exception):
    """A report is none that guidellm writes."""


@dataclass(frozen=True, slots=True)
class Objective:
    """What a good answer is: its first token after at most so many seconds, and so many for each further one."""

    first_s: float
    each_s: float


@dataclass(frozen=True, slots=True)
class Request:
    """One whole answer: when it was asked, seconds from there to its first and last token, tokens by the service."""

    began_s: float
    first_s: float
    whole_s: float
    prompt: int
    tokens: int

    @property
    def each_s(self) -> float:
        """Seconds for each token after the first."""
        return (self.whole_s - self.first_s) / (self.tokens - 1) if self.tokens > 1 else 0.0

    def is_good(self, objective: Objective) -> bool:
        """Whether it came as it should."""
        return self.first_s <= objective.first_s and self.each_s <= objective.each_s


@dataclass(frozen=True, slots=True)
class Level:
    """So many clients at once: from when until when they asked, what was answered, and how many answers failed.

    ``warnings``: what the tool says of itself, such as that it could not ask as fast as it should.
    """

    clients: int
    began_s: float
    ended_s: float
    requests: tuple[Request, ...]
    failed: int
    error: str
    warnings: tuple[str, ...]


def command(folder: Path) -> list[str]:
    """The words by which it is started."""
    return [MODULE, "run", "--config", str(folder / ASKED), "--disable-console"]


def asked_text(
    url: str, model: str, clients: Sequence[int], seconds: float, written: int, *, is_exact: bool, folder: Path
) -> str:
    """What it is told: so many clients at once, one number after the other, each for so many seconds.

    ``is_exact``: whether services are told not to end earlier, which those that are not ours may refuse.
    """
    body: dict[str, Any] = {"max_tokens": written}
    if is_exact:
        body |= {"min_tokens": written, "ignore_eos": True, "cache_prompt": False}
    backend = {
        "kind": "openai_http",
        "target": url,
        "model": model,
        "validate_backend": False,
        "http2": False,
        "extras": {"body": body},
    }
    spec = {
        "backend": backend,
        "profile": {"kind": "concurrent", "streams": list(clients)},
        "constraints": [{"kind": "max_duration", "seconds": seconds}],
        "tokenizer": {"kind": "huggingface_auto", "model": str(folder / TOKENIZER)},
        "data": [{"kind": "json_file", "path": str(folder / PROMPTS)}],
        "metrics": {"kind": "generative", "sample_size": 0},
        "outputs": [{"kind": "json", "path": str(folder / REPORT)}],
    }
    return json.dumps({"spec": spec})


def prompts_text(words: int, count: int, written: int, seed: int) -> str:
    """So many prompts of so many words, each another text."""
    lines = []
    for number in range(count):
        prompt = filler(words, seed + number)
        lines.append(json.dumps({"prompt": prompt, "output_tokens_count": written}))
    return "\n".join(lines) + "\n"


def levels_in(report: Any) -> list[Level]:
    """What each number of clients saw; raises ``UnknownReportError`` where the report does not say it."""
    try:
        return list(map(_level_in, report["benchmarks"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnknownReportError(f"guidellm does not report what it has measured: {error!r}") from error


def _level_in(said: Mapping[str, Any]) -> Level:
    requests = said["requests"]
    failed = requests["errored"]
    return Level(
        clients=int(said["config"]["strategy"]["streams"]),
        began_s=float(said["start_time"]),
        ended_s=float(said["end_time"]),
        requests=tuple(_requests(requests["successful"])),
        failed=len(failed),
        error=str(failed[0]["info"].get("error") or "") if failed else "",
        warnings=tuple(f"{one['message']} {one['note']}" for one in said["warnings"]),
    )


def _requests(said: Sequence[Mapping[str, Any]]) -> Iterator[Request]:
    for one in said:
        yield Request(
            began_s=float(one["request_start_time"]),
            first_s=float(one["time_to_first_token_ms"]) / MILLI,
            whole_s=float(one["request_latency"]),
            prompt=int(one["prompt_tokens"]),
            tokens=int(one["output_tokens"]),
        )


# Levels as they are judged: how long each client waits, how much all of them get, and what of it is good.
#
# Of all that is got in a second there are as many trials as the time has parts: one number alone tells nobody how sure
# it is.

KIND = "load"
PER_S = "tokens/s"
PARTS = 10
"""Of the time of one level: as many trials of what all clients get together."""
LEAST_S = 10.0
"""So long each number of clients asks at least."""


class NoAnswerError(Exception):
    """A level in which nobody was answered; the text says why."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One number of clients, what each of them saw, and how much of it was good."""

    level: Level
    objective: Objective
    waited: float
    """The part of the time in which something of the host waited for a processor, -1 where nobody tells."""

    def __post_init__(self) -> None:
        """Refuse a level in which nobody was answered."""
        if not self.level.requests:
            raise NoAnswerError(f"none of {self.level.clients} clients was answered: {self.level.error or 'in time'}")

    @property
    def good(self) -> int:
        """How many answers came as they should."""
        return sum(one.is_good(self.objective) for one in self.level.requests)

    @property
    def seconds(self) -> float:
        """How long they asked."""
        return self.level.ended_s - self.level.began_s

    @property
    def good_per_s(self) -> float:
        """Answers in a second that came as they should (goodput)."""
        return self.good / self.seconds

    @property
    def until_s(self) -> float:
        """Until when all tokens are known: answers that were not whole at the end are told by nobody."""
        longest = max(one.whole_s for one in self.level.requests)
        return self.level.ended_s - longest if longest < self.seconds / 2 else self.level.ended_s

    @property
    def in_parts(self) -> tuple[float, ...]:
        """Tokens in a second of all clients in each part of the time, as if each answer's came evenly."""
        part_s = (self.until_s - self.level.began_s) / PARTS
        found = []
        for number in range(PARTS):
            low = self.level.began_s + number * part_s
            tokens = 0.0
            for one in self.level.requests:
                tokens += tokens_between(one, low, low + part_s)
            found.append(tokens / part_s)
        return tuple(found)

    def series(self) -> Iterator[Series]:
        """Its figures: of each answer, and of all of them in each part of the time."""
        requests, behind = self.level.requests, f" @ c{self.level.clients}"
        yield Series(f"first token{behind}", SECONDS, self._trials(one.first_s for one in requests))
        streamed = [one for one in requests if one.each_s > 0]
        if streamed:
            yield Series(f"each{behind}", PER_S, self._trials(1 / one.each_s for one in streamed))
        yield Series(f"all{behind}", PER_S, self._trials(self.in_parts))

    def _trials(self, values: Iterable[float]) -> tuple[Trial, ...]:
        return tuple(Trial(value, self.waited) for value in values)

    def result(self, at: str, service: str, where: Setting) -> Result:
        """What is kept of it."""
        return Result(at, KIND, service, where, tuple(self.series()))


def options_of(model: str, tokens: tuple[int, int], clients: int) -> dict[str, str]:
    """What decides about figures of so many clients besides the service; ``tokens``: read and written."""
    read, written = tokens
    return {"model": model, "p": str(read), "n": str(written), "c": str(clients)}


def tokens_between(request: Request, low: float, high: float) -> float:
    """How many of its tokens came between two moments, the first one at once and the others evenly."""
    first, last = request.began_s + request.first_s, request.began_s + request.whole_s
    found = 1.0 if low <= first < high else 0.0
    if request.tokens > 1 and last > first:
        share = max(min(last, high) - max(first, low), 0.0) / (last - first)
        found += (request.tokens - 1) * share
    elif low <= first < high:
        found = float(request.tokens)
    return found


def seconds_each(budget_s: float, levels: int) -> float:
    """How long each number of clients asks."""
    return max(budget_s / levels, LEAST_S)


def percentile(values: list[float], part: float) -> float:
    """The value below which that part of them lies, the nearest one that was measured."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def figures(judged: Judged) -> Mapping[str, float]:
    """What a table shows of it."""
    requests = judged.level.requests
    firsts = [one.first_s for one in requests]
    return {
        "clients": judged.level.clients,
        "answers": len(requests),
        "failed": judged.level.failed,
        "first": percentile(firsts, 0.5),
        "first_of_most": percentile(firsts, 0.95),
        "each": 1 / percentile([one.each_s for one in requests], 0.5) if any(one.each_s for one in requests) else 0.0,
        "all": fmean(judged.in_parts),
        "good_per_s": judged.good_per_s,
        "good": judged.good / len(requests),
    }


# The measurement: each number of clients in a start of its own.

SPARE_S = 240.0
"""So long the tool may take besides, until it hangs: it does where all requests fail."""
PROMPTS_MADE = 1000
"""Texts that clients are given, one after the other; the next round begins with the first one again."""
MOST_WORDS = 20_000_000
LARGEST_REPORT = 2**28
FAST_TOKENIZER = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}


@dataclass(frozen=True, slots=True)
class Asked:
    """So many clients at once, each number for so many seconds; tokens that they send and get; what is good."""

    clients: tuple[int, ...]
    seconds: float
    read: int
    written: int
    objective: Objective


def measure_load(endpoint: Endpoint, asked: Asked, emit: Callable[[Event], None]) -> list[Judged]:
    """What each number of clients saw, the smallest first, each in a start of its own with texts of its own.

    Raises ``VerificationError`` where nobody is answered, ``PreflightError`` where others ask it, too.
    """
    python = python_of(TOOL, emit)
    found: list[Judged] = []
    with forwarding(endpoint.target) as forwarder:
        emit(ApplyProgress(endpoint.name, "counting how many tokens a text has there"))
        words = _words(endpoint, forwarder, asked)
        for clients in asked.clients:
            text = f"{clients} clients at once for {asked.seconds:.0f} s"
            emit(ApplyProgress(endpoint.name, text, goes_on=bool(found)))
            found.append(_judged(endpoint, forwarder, python, replace(asked, clients=(clients,)), words))
    return found


def _words(endpoint: Endpoint, forwarder: Forwarder, asked: Asked) -> int:
    """How many words a prompt has; raises ``VerificationError`` where one of that length is not answered."""
    length = length_of_words(endpoint, forwarder, asked.read)
    words = length.words(max(round(asked.read - length.around), 1))
    tokens_of_words(endpoint, forwarder, words)
    return words


def _judged(endpoint: Endpoint, forwarder: Forwarder, python: Path, asked: Asked, words: int) -> Judged:
    """What one number of clients saw."""
    with TemporaryDirectory(prefix="provision-bench-") as name:
        folder = Path(name)
        _write(folder, endpoint, forwarder, asked, words)
        before = forwarder.prompts
        load = endpoint.look()
        level = _level(endpoint, python, folder, asked)
        waited, others = load.share_until_now(forwarder.prompts - before)
    if others > 0:
        raise PreflightError(
            f"Unable to measure {endpoint.name}: others ask it meanwhile",
            details=f"{others} requests were not from here. Nothing is kept.",
            resolution="Measure when nobody asks it.",
        )
    try:
        return Judged(level, asked.objective, waited)
    except NoAnswerError as error:
        raise failed(endpoint, str(error)) from error


def _write(folder: Path, endpoint: Endpoint, forwarder: Forwarder, asked: Asked, words: int) -> None:
    """What the tool is told, its prompts, and a tokenizer that needs nothing of the model."""
    count = max(min(PROMPTS_MADE, MOST_WORDS // words), 2 * max(asked.clients))
    tokenizer = folder / TOKENIZER
    tokenizer.mkdir()
    (tokenizer / "tokenizer.json").write_text(tokenizer_text(), encoding="ascii")
    (tokenizer / "tokenizer_config.json").write_text(json.dumps(FAST_TOKENIZER), encoding="ascii")
    texts = prompts_text(words, count, asked.written, secrets.randbits(32))
    (folder / PROMPTS).write_text(texts, encoding="ascii")
    told = asked_text(
        forwarder.url,
        endpoint.model,
        asked.clients,
        asked.seconds,
        asked.written,
        is_exact=endpoint.is_ours,
        folder=folder,
    )
    (folder / ASKED).write_text(told, encoding="utf-8")


def _level(endpoint: Endpoint, python: Path, folder: Path, asked: Asked) -> Level:
    """What its report says of that number of clients."""
    try:
        for _ in lines_of(python, START, command(folder), folder, asked.seconds + SPARE_S):
            pass  # it reports when it has ended
        levels = levels_in(json_value(content_of(folder / REPORT, LARGEST_REPORT)))
    except (ToolError, UnknownReportError, OSError, ValueError) as error:
        raise ProviderError(f"Unable to measure {endpoint.name}: {TOOL} failed", details=str(error)) from error
    told = [level.clients for level in levels]
    if told != list(asked.clients):
        raise ProviderError(
            f"Unable to measure {endpoint.name}: {TOOL} told of {told} clients, and {list(asked.clients)} were asked"
        )
    return levels[0]


# Levels as text and as values.

HEAD = ("CLIENTS", "ANSWERS", "FAILED", "FIRST TOKEN", "OF 95 %", "TOKENS/S EACH", "TOKENS/S ALL", "GOOD/S", "GOOD")
SIZE = "1.6 GB"
"""What guidellm and PyTorch take of the disk."""


def foretold_text(name: str, clients: Sequence[int], seconds: float, *, costs: bool, is_made: bool) -> str:
    """How long it takes, what is installed first, and whether it may cost money."""
    took = duration_text(seconds * len(clients))
    numbers = ", ".join(map(str, clients))
    lines = [f"{name} is asked by guidellm for {took}, by {numbers} clients at once; nobody else may ask it."]
    if not is_made:
        lines.append(f"guidellm is fetched and installed first, with PyTorch: it takes about {SIZE} of your cache.")
    if costs:
        lines.append("How many tokens that are depends on how fast it answers. What they cost, its provider says.")
    return "\n".join(lines)


def load_text(found: Sequence[Judged], style: Style = PLAIN) -> str:
    """A line for each number of clients, and what the tool says of itself."""
    objective = found[0].objective
    rate = f"{1 / objective.each_s:g} tokens/s"
    lines = [table(HEAD, list(map(_row, found)), style), ""]
    lines.append(f"Good is an answer that begins within {objective.first_s:g} s, and goes on with {rate}.")
    for one in found:
        errors = [f"{one.level.clients} clients: {one.level.error}"] if one.level.error else []
        for word in (*errors, *one.level.warnings):
            if safe_line(word) not in lines:
                lines.append(safe_line(word))
    return "\n".join(lines)


def load_content(found: Sequence[Judged]) -> list[dict[str, Any]]:
    """All of it as values."""
    return [{**figures(one), "error": one.level.error, "warnings": list(one.level.warnings)} for one in found]


def _row(judged: Judged) -> tuple[str, ...]:
    said = figures(judged)
    return (
        str(judged.level.clients),
        str(len(judged.level.requests)),
        str(judged.level.failed),
        f"{said['first']:.2f} s",
        f"{said['first_of_most']:.2f} s",
        number_text(said["each"]) if said["each"] else "no stream",
        number_text(said["all"]),
        f"{said['good_per_s']:.2f}",
        f"{said['good']:.0%}",
    )
