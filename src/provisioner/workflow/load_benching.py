"""``bench --kind load``: what many clients of a service see at once, by guidellm, which asks it from this machine."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from provisioner.forwarder import Forwarder, forwarding
from provisioner.measuring.guidellm import (
    ASKED,
    PROMPTS,
    REPORT,
    TOKENIZER,
    TOOL,
    Level,
    Objective,
    UnknownReportError,
    asked_text,
    command,
    levels_in,
    prompts_text,
)
from provisioner.measuring.llama_benchy import START, tokenizer_text
from provisioner.measuring.load_bench import Judged, NoAnswerError
from provisioner.tool_environments import python_of
from provisioner.tool_runs import ToolError, lines_of
from provisioner.values.errors import PreflightError, ProviderError
from provisioner.values.events import ApplyProgress, Event
from provisioner.values.plain_data import json_value
from provisioner.values.regular_files import content_of
from provisioner.workflow.endpoints import Endpoint, failed, length_of_words, tokens_of_words

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
