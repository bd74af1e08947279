"""``bench --kind llm``: what clients of a service see, by llama-benchy, which asks it from this machine."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep

from provisioner.forwarder import Forwarder, forwarding
from provisioner.measuring.budget import SPREAD_S, trials_within
from provisioner.measuring.filler import filler
from provisioner.measuring.history import Result
from provisioner.measuring.llama_benchy import (
    START,
    TOOL,
    Answered,
    Progress,
    UnknownProgressError,
    book_file,
    command,
    tokenizer_text,
)
from provisioner.measuring.llm_bench import (
    MOST_WORDS,
    Depth,
    UncountedError,
    depth_of,
    fit,
    fit_by_answers,
    rounds_of,
)
from provisioner.tool_environments import python_of
from provisioner.tool_runs import ToolError, lines_of
from provisioner.values.errors import PreflightError, ProviderError
from provisioner.values.events import ApplyProgress, Diagnostic, Event
from provisioner.workflow.endpoints import LONGEST_ANSWER_S, Endpoint, Load, failed, length_of_words

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
