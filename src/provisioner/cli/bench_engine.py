"""``bench --kind engine``: measured, kept, held against what was accepted, and compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from provisioner.cli.bench_options import PERCENT, Asked
from provisioner.cli.drawing import check_place, draw
from provisioner.cli.options import Words
from provisioner.cli.session import Session
from provisioner.measuring.engine_bench import (
    BUDGET_S,
    KIND,
    LEAST_TRIALS,
    Arrangement,
    Subject,
    arrangements,
    setting_of,
)
from provisioner.measuring.gate import Compared, held, others, troubled
from provisioner.measuring.history import (
    DamagedResultError,
    Result,
    accept,
    accepted_file_of,
    accepted_for,
    file_of,
    results_in,
)
from provisioner.measuring.llama_bench import sweeps
from provisioner.report import engine_bench as report
from provisioner.values.errors import ExitCode, InputError, PreflightError

ACCEPTED, LAST = "accepted", "last"


def bench_engine(session: Session, words: Words, asked: Asked, plot: Path | None) -> int:
    """Measure the engine that is named, or show what was kept of it; 3 where ``--gate`` finds it slower."""
    if len(words.names) != 1:
        raise InputError(
            "Unable to measure: one engine is wanted", resolution="Run: provision bench FILE CONTAINER --kind engine"
        )
    if (asked.gate or asked.accept) and asked.trials and asked.trials < LEAST_TRIALS:
        raise InputError(
            f"Unable to judge by {asked.trials} trials: they say too little",
            resolution=f"Make at least {LEAST_TRIALS}, or leave out --trials.",
        )
    if plot is not None:
        check_place(plot)
    if asked.history or asked.compare:
        return _show(session, words, asked, plot)
    return _measure(session, words, asked, plot)


def _measure(session: Session, words: Words, asked: Asked, plot: Path | None) -> int:
    """Measure it, after a question, and hold it against what was accepted."""
    from provisioner.cli.confirm import require_yes
    from provisioner.workflow import engine_benching

    lab = session.open_lab(words.existing(), with_secrets=True)
    effects = session.effects(lab)
    subject = engine_benching.subject_of(lab, effects, words.names[0])
    baseline = _kept(accepted_file_of(lab.name, subject.service.address))
    arranged = arrangements(subject, asked.tokens, tuple(sweeps(asked.sweep)))
    if asked.gate:
        _check_accepted(subject, arranged, baseline)
    if not asked.yes:
        told = report.foretold_text(subject, len(arranged), asked.trials, BUDGET_S)
        require_yes(session.console, told, "Not measured")
    results = engine_benching.measure_engine(
        lab, effects, subject, arranged, trials=asked.trials or 0, may_refuse=asked.refuse
    )
    session.console.stop_progress()
    _draw(plot, results)
    found = _judged(session, results, baseline, asked)
    if asked.accept:
        accept(accepted_file_of(lab.name, subject.service.address), results)
        session.console.say("Later results are held against this one.")
    return ExitCode.VERIFICATION_FAILED if asked.gate and found else ExitCode.DONE


def _draw(plot: Path | None, results: Sequence[Result]) -> None:
    """Draw results where a picture of them is wanted."""
    if plot is not None and results:
        from provisioner.report.engine_bench_picture import engine_bench_svg

        draw(plot, engine_bench_svg(results))


def _judged(session: Session, results: Sequence[Result], baseline: Sequence[Result], asked: Asked) -> list[Compared]:
    """Tell what was measured, held against what was accepted; the figures that have become worse.

    Raises ``PreflightError`` where ``--gate`` was asked for, and nothing can be said.
    """
    threshold = asked.threshold / PERCENT
    known = []
    for now in results:
        before = accepted_for(KIND, now.setting.options, baseline)
        if before is not None:
            known.append((before, now, list(held(before, now))))
    texts = [report.results_text(results, session.console.style)]
    texts += [report.compared_text(*one, threshold, session.console.style) for one in known]
    worse = [one for *_, found in known for one in found if one.is_worse(threshold)]
    session.console.result(
        "\n\n".join(texts),
        kind="engine",
        results=report.results_content(results),
        compared=[one for *_, found in known for one in report.compared_content(found, threshold)],
    )
    if asked.gate:
        _check_judged(known)
    return worse


def _check_accepted(subject: Subject, arranged: Sequence[Arrangement], baseline: Sequence[Result]) -> None:
    """Raise ``PreflightError`` before anything is measured that nothing accepted can be held against."""
    reasons: list[str] = []
    for one in arranged:
        now = setting_of(subject, one.command)
        before = accepted_for(KIND, now.options, baseline)
        reasons += ["nothing was accepted with these options"] if before is None else others(before.setting, now)
    if reasons:
        raise PreflightError(
            f"Unable to judge {subject.service.address}: {'; '.join(dict.fromkeys(reasons))}",
            details="Nothing was measured.",
            resolution=f"Accept what it computes now: provision bench {subject.container} --kind engine --accept",
        )


def _check_judged(known: Sequence[tuple[Result, Result, Sequence[Compared]]]) -> None:
    """Raise ``PreflightError`` where what was measured says nothing of the engine."""
    reasons = [reason for before, now, _ in known if (reason := troubled(before, now))]
    for before, _, found in known:
        missing = {one.name for one in before.series} - {one.name for one in found}
        reasons += [f"{name} was accepted, and not measured now" for name in sorted(missing)]
    if reasons:
        raise PreflightError(
            f"Unable to judge {known[0][1].service}: {'; '.join(dict.fromkeys(reasons))}",
            details="What was measured is kept.",
            resolution="Measure again when no other work runs.",
        )


def _show(session: Session, words: Words, asked: Asked, plot: Path | None) -> int:
    """What was kept, or two results of it held against each other."""
    from provisioner.workflow.engine_pauses import engine_named

    lab = session.open_lab(words.existing(), needs="none")
    address = engine_named(lab.resolved, words.names[0], "measure").address
    kept = _kept(file_of(lab.name, address))
    style = session.console.style
    if not asked.compare:
        _draw(plot, kept)
        text = report.history_text(kept, style) if kept else f"Nothing was measured of {address} yet."
        session.console.result(text, results=report.results_content(kept))
        return ExitCode.DONE
    accepted = _kept(accepted_file_of(lab.name, address))
    before, now = (_named(word, kept, accepted) for word in asked.compare)
    _draw(plot, (before, now))
    found, threshold = list(held(before, now)), asked.threshold / PERCENT
    text = report.compared_text(before, now, found, threshold, style)
    session.console.result(text, compared=report.compared_content(found, threshold))
    return ExitCode.DONE


def _named(word: str, kept: Sequence[Result], accepted: Sequence[Result]) -> Result:
    """The result that a word of ``--compare`` names; raises ``InputError`` where there is none."""
    if word == ACCEPTED:
        found: Sequence[Result] = accepted
    elif word == LAST:
        found = kept
    elif word.isdecimal():
        found = kept[int(word) - 1 : int(word)] if int(word) else ()
    else:
        found = _kept(Path(word))
    if not found:
        raise InputError(
            f"Unable to compare {word}: there is no such result",
            resolution="Name a number of provision bench NAME --history, 'last', 'accepted', or a file of results.",
        )
    return found[-1]


def _kept(file: Path) -> list[Result]:
    """What a file holds; raises ``InputError`` where that is damaged."""
    try:
        return results_in(file)
    except DamagedResultError as error:
        raise InputError(
            f"Unable to read results: {error}", resolution="Take that line out of the file, or the file away."
        ) from error
