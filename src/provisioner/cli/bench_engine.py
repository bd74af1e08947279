"""``bench --kind engine`` and ``--kind quality``: what the program of an engine computes, without its server."""

from __future__ import annotations

from pathlib import Path

from provisioner.cli.bench_options import Asked
from provisioner.cli.bench_results import check_accepted, judge
from provisioner.cli.options import Words
from provisioner.cli.session import Session
from provisioner.measuring import engine, quality
from provisioner.measuring.engine import KIND, arrangements, setting_of, sweeps
from provisioner.measuring.history import BUDGET_S, accepted_file_of
from provisioner.measuring.quality import CHUNKS, CONTEXT, Reading
from provisioner.values.errors import ExitCode, InputError
from provisioner.values.regular_files import text_of

MOST_CHARACTERS = 16
"""Of a token, on average: what is behind as many of them for each is read by nobody."""
LONGEST_TEXT = 2**24
"""Bytes; a chunk of 512 tokens has about 2 KiB."""


def bench_engine(session: Session, words: Words, asked: Asked, plot: Path | None) -> int:
    """Measure the engine that is named, after a question; 3 where ``--gate`` finds it slower."""
    from provisioner.cli.confirm import require_yes

    lab = session.open_lab(words.existing(), with_secrets=True)
    effects = session.effects(lab)
    subject = engine.subject_of(lab, effects, words.names[0])
    address = subject.service.address
    arranged = arrangements(subject, asked.tokens, tuple(sweeps(asked.sweep)))
    accepted = accepted_file_of(lab.name, address)
    if asked.gate:
        wanted = [setting_of(subject, one.command) for one in arranged]
        check_accepted(KIND, accepted, address, wanted, f"provision bench {subject.container} --kind {KIND}")
    if not asked.yes:
        told = engine.foretold_text(subject, len(arranged), asked.trials, BUDGET_S)
        require_yes(session.console, told, "Not measured")
    results = engine.measure_engine(lab, effects, subject, arranged, trials=asked.trials or 0, may_refuse=asked.refuse)
    return judge(session, accepted, results, asked, plot)


def bench_quality(session: Session, words: Words, asked: Asked) -> int:
    """Hold the models of an engine against their parent, after a question."""
    from provisioner.cli.confirm import require_yes

    if not asked.parent or not asked.text:
        raise InputError(
            f"Unable to judge models without --{'text' if asked.parent else 'parent'}",
            resolution="Say --parent MODEL and --text FILE, a text like those that they are for.",
        )
    chunks = asked.chunks or CHUNKS
    reading = Reading(_text(asked.text)[: chunks * CONTEXT * MOST_CHARACTERS], chunks)
    lab = session.open_lab(words.existing(), with_secrets=True)
    effects = session.effects(lab)
    subject = quality.subject_of(lab, effects, words.names[0], asked.parent)
    quality.check_wait(subject, may_refuse=asked.refuse)
    quality.check_room(subject, chunks)
    if not asked.yes:
        require_yes(session.console, quality.foretold_text(subject, chunks), "Not measured")
    judged = quality.judge_quants(lab, effects, subject, reading, may_refuse=asked.refuse)
    found = [(quant, lost) for quant, lost, _ in judged]
    session.console.stop_progress()
    session.console.result(
        quality.quality_text(subject, found, session.console.style),
        kind="quality",
        **quality.quality_content(subject, found),
    )
    return ExitCode.DONE


def _text(file: Path) -> str:
    """What the models read; raises ``InputError`` where that is no text."""
    try:
        text = text_of(file, LONGEST_TEXT)
    except (OSError, ValueError) as error:
        raise InputError(f"Unable to read {file}: {error}", resolution="Name a file of plain text in UTF-8.") from error
    if not text.strip() or "\0" in text:
        raise InputError(f"Unable to read {file}: it holds no text", resolution="Name a file of plain text in UTF-8.")
    return text
