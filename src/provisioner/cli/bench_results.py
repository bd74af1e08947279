"""The results of every kind of ``bench``: told, held against what was accepted, kept, and compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provisioner.cli.bench_options import PERCENT, Asked
from provisioner.cli.drawing import draw
from provisioner.cli.options import Words
from provisioner.cli.session import Session
from provisioner.measuring import engine
from provisioner.measuring.history import ACCEPTED as ACCEPTED_SUFFIX
from provisioner.measuring.history import (
    LEAST_TRIALS,
    Compared,
    DamagedResultError,
    Result,
    Setting,
    accept,
    accepted_file_of,
    accepted_for,
    file_of,
    files_of,
    held,
    others,
    results_in,
    troubled,
)
from provisioner.values.address import Address
from provisioner.values.errors import ExitCode, InputError, PreflightError

if TYPE_CHECKING:  # the lab is read when results are shown
    from provisioner.lab.opening import Lab

ACCEPTED, LAST = "accepted", "last"


def check_trials(asked: Asked, least: int) -> None:
    """Raise ``InputError`` where something is to be judged by too few trials."""
    if (asked.gate or asked.accept) and asked.trials and asked.trials < least:
        raise InputError(
            f"Unable to judge by {asked.trials} trials: they say too little",
            resolution=f"Make at least {least}, or leave out --trials.",
        )


@dataclass(frozen=True, slots=True)
class Told:
    """What is said of results in the place of their figures, as text and as values."""

    text: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Group:
    """Results of one service, and the file with what of it they are held against."""

    accepted: Path
    results: Sequence[Result]


def judge(
    session: Session,
    accepted: Path,
    results: Sequence[Result],
    asked: Asked,
    plot: Path | None,
    *,
    told: Told | None = None,
) -> int:
    """As ``judge_all`` of one service."""
    return judge_all(session, [Group(accepted, results)], asked, plot, told=told)


def judge_all(
    session: Session, groups: Sequence[Group], asked: Asked, plot: Path | None, *, told: Told | None = None
) -> int:
    """Tell what was measured, draw it, and hold it against what was accepted; 3 where ``--gate`` finds it worse.

    Raises ``PreflightError`` where ``--gate`` was asked for, and nothing can be said.
    """
    session.console.stop_progress()
    results = [result for group in groups for result in group.results]
    _draw(plot, results)
    figures = told or Told(engine.results_text(results, session.console.style), {})
    found = _judged(session, groups, asked, figures)
    if asked.gate or asked.accept:
        _check_enough(results)
    if asked.accept:
        for group in groups:
            accept(group.accepted, group.results)
        session.console.say("Later results are held against this one.")
    return ExitCode.VERIFICATION_FAILED if asked.gate and found else ExitCode.DONE


def _check_enough(results: Sequence[Result]) -> None:
    """Raise ``PreflightError`` where a figure was measured too seldom to judge by it."""
    for result in results:
        for series in result.series:
            if len(series.trials) < LEAST_TRIALS:
                raise PreflightError(
                    f"Unable to judge by {len(series.trials)} trials of {series.name}: they say too little",
                    details="What was measured is kept.",
                    resolution=f"At least {LEAST_TRIALS} are wanted: have fewer tokens written.",
                )


def _draw(plot: Path | None, results: Sequence[Result]) -> None:
    """Draw results where a picture of them is wanted."""
    if plot is not None and results:
        from provisioner.measuring.engine import engine_bench_svg

        draw(plot, engine_bench_svg(results))


def _judged(session: Session, groups: Sequence[Group], asked: Asked, told: Told) -> list[Compared]:
    """Tell what was measured, held against what was accepted; the figures that have become worse.

    Raises ``PreflightError`` where ``--gate`` was asked for, and nothing can be said.
    """
    threshold = asked.threshold / PERCENT
    results = [result for group in groups for result in group.results]
    known = [one for group in groups for one in _held(group)]
    texts = [told.text]
    texts += [engine.compared_text(*one, threshold, session.console.style) for one in known]
    worse = [one for *_, found in known for one in found if one.is_worse(threshold)]
    session.console.result(
        "\n\n".join(texts),
        kind=results[0].kind,
        results=engine.results_content(results),
        compared=[one for *_, found in known for one in engine.compared_content(found, threshold)],
        **told.values,
    )
    if asked.gate:
        _check_judged(known)
    return worse


def _held(group: Group) -> Iterator[tuple[Result, Result, list[Compared]]]:
    """Each result of a service that something accepted is known for: that, the result, and their figures."""
    baseline = kept_in(group.accepted)
    for now in group.results:
        before = accepted_for(now.kind, now.setting.options, baseline)
        if before is not None:
            yield before, now, list(held(before, now))


def check_accepted(kind: str, accepted: Path, address: Address, wanted: Iterable[Setting], command: str) -> None:
    """Raise ``PreflightError`` before anything is measured that nothing accepted can be held against.

    ``command``: the words by which it is measured.
    """
    reasons: list[str] = []
    baseline = kept_in(accepted)
    for now in wanted:
        before = accepted_for(kind, now.options, baseline)
        reasons += ["nothing was accepted with these options"] if before is None else others(before.setting, now)
    if reasons:
        raise PreflightError(
            f"Unable to judge {address}: {'; '.join(dict.fromkeys(reasons))}",
            details="Nothing was measured.",
            resolution=f"Accept what is measured now: {command} --accept",
        )


def _check_judged(known: Sequence[tuple[Result, Result, Sequence[Compared]]]) -> None:
    """Raise ``PreflightError`` where what was measured says nothing of the engine."""
    reasons = [reason for before, now, _ in known if (reason := troubled(before, now))]
    for before, _, found in known:
        missing = {one.name for one in before.series} - {one.name for one in found}
        reasons += [f"{name} was accepted, and not measured now" for name in sorted(missing)]
    if reasons:
        services = dict.fromkeys(now.service for _, now, _ in known)
        raise PreflightError(
            f"Unable to judge {', '.join(services)}: {'; '.join(dict.fromkeys(reasons))}",
            details="What was measured is kept.",
            resolution="Measure again when no other work runs.",
        )


def show(session: Session, words: Words, asked: Asked, plot: Path | None) -> int:
    """What was kept, or two results of it held against each other."""
    from provisioner.measuring.endpoints import address_of_url, measured_address

    lab = session.open_lab(words.existing(), needs="none")
    kept, accepted = [], list[Result]()
    style = session.console.style
    if asked.url or words.names:
        address = address_of_url(asked.url) if asked.url else measured_address(lab.resolved, words.names[0])
        kept = kept_in(file_of(lab.name, address))
        accepted = kept_in(accepted_file_of(lab.name, address)) if asked.compare else []
    if not asked.compare:
        _draw(plot, kept)
        text = engine.history_text(kept, style) if kept else f"Nothing was measured of {address} yet."
        session.console.result(text, results=engine.results_content(kept))
        return ExitCode.DONE
    before, now = (_named(word, kept, accepted, lab) for word in asked.compare)
    _draw(plot, (before, now))
    found, threshold = list(held(before, now)), asked.threshold / PERCENT
    text = engine.compared_text(before, now, found, threshold, style)
    session.console.result(text, compared=engine.compared_content(found, threshold))
    return ExitCode.DONE


def _named(word: str, kept: Sequence[Result], accepted: Sequence[Result], lab: Lab) -> Result:
    """The result that a word of ``--compare`` names; raises ``InputError`` where there is none."""
    found = _chosen(word, kept, accepted)
    if found is None:
        found = kept_in(Path(word)) if Path(word).is_file() else _of_service(word, lab)
    if not found:
        raise InputError(
            f"Unable to compare {word}: there is no such result",
            resolution="Name a number of provision bench NAME --history, 'last', 'accepted', a container that was "
            "measured (NAME, NAME:1 or NAME:accepted), or a file of results.",
        )
    return found[-1]


def _chosen(word: str, kept: Sequence[Result], accepted: Sequence[Result]) -> Sequence[Result] | None:
    """The results of one service that ``last``, ``accepted`` or a number name; None where it is another word."""
    if word == ACCEPTED:
        return accepted
    if word == LAST:
        return kept
    if word.isdecimal():
        return kept[int(word) - 1 : int(word)] if int(word) else ()
    return None


def _of_service(word: str, lab: Lab) -> Sequence[Result]:
    """The results of another service, ``CONTAINER`` or ``CONTAINER/SERVICE``, of which ``:`` may name one.

    Its container may be gone by now; none where nothing of it was kept.
    """
    name, sign, which = word.partition(":")
    measured = [file for file in files_of(lab.name) if name in _names_in(file)]
    if not name or len(measured) != 1:
        return ()
    (file,) = measured
    return _chosen(which if sign else LAST, kept_in(file), kept_in(file.with_suffix(ACCEPTED_SUFFIX))) or ()


def _names_in(file: Path) -> tuple[str, str]:
    """The container whose results a file holds, and the address of its service."""
    container, _, service = file.stem.partition(".")
    return container, Address.of(container, service)


def kept_in(file: Path) -> list[Result]:
    """What a file holds; raises ``InputError`` where that is damaged."""
    try:
        return results_in(file)
    except DamagedResultError as error:
        raise InputError(
            f"Unable to read results: {error}", resolution="Take that line out of the file, or the file away."
        ) from error
