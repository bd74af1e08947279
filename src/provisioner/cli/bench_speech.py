"""``bench --kind tts``: how fast services speak, and whether that has become slower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from provisioner.cli.bench_options import Asked
from provisioner.cli.bench_results import Group, Told, check_accepted, judge_all
from provisioner.cli.containers import Containers
from provisioner.cli.drawing import check_place, draw
from provisioner.cli.options import Words
from provisioner.cli.session import Session
from provisioner.hosts.base import Provider
from provisioner.lab.opening import Lab
from provisioner.measuring.endpoints import host_load
from provisioner.measuring.history import LEAST_TRIALS, Setting, accepted_file_of, file_of, keep
from provisioner.measuring.pause import Engine
from provisioner.measuring.speech import (
    KIND,
    Bench,
    Speaker,
    asks,
    bench_content,
    bench_text,
    computes_on_card,
    measure,
    result_of,
    setting_of,
    speakers_of,
)
from provisioner.reconcile.effects import Effects
from provisioner.values.errors import InputError


@dataclass(frozen=True, slots=True)
class _Subject:
    """One that speaks, in its container, and on what it is measured."""

    speaker: Speaker
    provider: Provider
    engine: Engine
    where: Setting


def bench_speech(session: Session, words: Words, asked: Asked, *, runs: int, long: int, plot: Path | None) -> int:
    """Have all that are named speak, keep what that took, and judge it; 3 where ``--gate`` finds one slower."""
    trials = asked.trials or runs
    if plot is not None:
        check_place(plot)
    lab = session.open_lab(words.existing(), with_secrets=True, needs="hosts")
    lab.check_targets(words.names)
    speakers = speakers_of(lab, words.names)
    _check_trials(asked, trials)
    effects = session.effects(lab)
    subjects = _subjects(session, lab, effects, speakers, long)
    if asked.gate:
        _check_accepted(lab, subjects)
    found: list[Bench] = []
    groups: list[Group] = []
    for one in subjects:
        speaker = one.speaker
        bench = measure(
            speaker,
            one.provider,
            asks(speaker.voices, long),
            runs=trials,
            emit=session.console.emit,
            look=partial(host_load, one.engine, effects),
        )
        result = result_of(bench, datetime.now(UTC).isoformat(timespec="seconds"), speaker.address, one.where)
        keep(file_of(lab.name, speaker.address), result)
        found.append(bench)
        groups.append(Group(accepted_file_of(lab.name, speaker.address), (result,)))
    written = {"file": str(plot)} if plot else {}
    code = judge_all(session, groups, asked, None, told=Told(bench_text(found), {**bench_content(found), **written}))
    if plot is not None:
        from provisioner.measuring.speech import bench_svg

        draw(plot, bench_svg(found))
    return code


def _check_trials(asked: Asked, trials: int) -> None:
    """Raise ``InputError`` where something is to be judged by too few answers."""
    if (asked.gate or asked.accept) and trials < LEAST_TRIALS:
        raise InputError(
            f"Unable to judge by {trials} trials: they say too little",
            resolution=f"Have each text spoken at least {LEAST_TRIALS} times: --trials {LEAST_TRIALS}",
        )


def _subjects(session: Session, lab: Lab, effects: Effects, speakers: Sequence[Speaker], long: int) -> list[_Subject]:
    """All that speak, looked at in their containers; raises ``PreflightError`` where one of those does not run."""
    containers = Containers(session, lab)
    there = [(speaker, containers.running(speaker.container)) for speaker in speakers]
    found: list[_Subject] = []
    for speaker, provider in there:
        engine = Engine(lab.resolved.services[speaker.address], containers.instance(speaker.container))
        on_card = computes_on_card(speaker, provider)
        where = setting_of(engine, effects, asks(speaker.voices, long), on_card=on_card)
        found.append(_Subject(speaker, provider, engine, where))
    return found


def _check_accepted(lab: Lab, subjects: Sequence[_Subject]) -> None:
    """Raise ``PreflightError`` before anything is measured that nothing accepted can be held against."""
    for one in subjects:
        address = one.speaker.address
        command = f"provision bench {address.container} --kind {KIND} --trials {LEAST_TRIALS}"
        check_accepted(KIND, accepted_file_of(lab.name, address), address, [one.where], command)
