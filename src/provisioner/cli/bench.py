"""The verb ``bench``: how fast the services of a file are, and whether they have become slower."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from provisioner.bench import LONGEST, asks
from provisioner.cli.bench_options import Asked, engine_options
from provisioner.cli.drawing import check_place, draw
from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode, InputError

SPEECH, ENGINE = "tts", "engine"
SPEECH_ONLY = ("runs", "long")


@click.command()
@verb
@lab_words(names=True)
@option(
    "--kind",
    type=click.Choice((SPEECH, ENGINE)),
    default=SPEECH,
    show_default=True,
    help="What is measured: speech, or what an engine computes.",
)
@option("--runs", type=click.IntRange(1, 99), default=3, show_default=True, help="How often each text is spoken.")
@option(
    "--long",
    type=click.IntRange(0, LONGEST),
    default=2000,
    show_default=True,
    metavar="CHARACTERS",
    help="Length of the long text; 0 leaves it out.",
)
@option(
    "--plot",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Write a picture (SVG), too: when the audio arrived, or a bar for each setting.",
)
@engine_options
def bench(session: Session, words: Words, *, kind: str, runs: int, long: int, plot: Path | None, **asked: Any) -> int:
    """Take the time of services: how they speak (tts), or how many tokens an engine computes in a second (engine).

    Speech: a short text of two sentences in three formats and by all voices of the file, and a long one; medians. With
    containers on the CPU and on a card it says which of them is worth it.

    Engine: llama-bench with the words that it is served with, as it is or with others (--sweep), again and again for
    four and a half minutes, while requests wait in its switch. Results are kept: --gate fails where figures are worse
    than those that were accepted, and that is no noise.
    """
    is_engine = kind == ENGINE or bool(asked["history"] or asked["compare"])
    _check_kind(SPEECH_ONLY if is_engine else tuple(asked), "an engine" if is_engine else "speech")
    if is_engine:
        from provisioner.cli.bench_engine import bench_engine

        return bench_engine(session, words, Asked(**asked), plot)
    return _speech(session, words, runs=runs, long=long, plot=plot)


def _check_kind(of_others: Sequence[str], kind: str) -> None:
    """Raise ``InputError`` where an option was given that says nothing of that kind: it would be left out silently."""
    context = click.get_current_context()
    given = [name for name in of_others if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given:
        raise InputError(f"Unable to measure {kind} with --{given[0]}", resolution="Leave it out, or say --kind.")


def _speech(session: Session, words: Words, *, runs: int, long: int, plot: Path | None) -> int:
    from provisioner.cli.containers import Containers
    from provisioner.report.bench import bench_content, bench_text
    from provisioner.workflow.benching import measure, speakers_of

    if plot is not None:
        check_place(plot)
    lab = session.open_lab(words.existing(), with_secrets=True, needs="hosts")
    lab.check_targets(words.names)
    speakers = speakers_of(lab, words.names)
    containers = Containers(session, lab)
    there = {one: containers.running(one.container) for one in speakers}
    emit = session.console.emit
    found = [measure(one, there[one], asks(one.voices, long), runs=runs, emit=emit) for one in speakers]
    written = {"file": str(plot)} if plot else {}
    session.console.result(bench_text(found), kind=SPEECH, **bench_content(found), **written)
    if plot is not None:
        from provisioner.report.bench_picture import bench_svg

        draw(plot, bench_svg(found))
    return ExitCode.DONE
