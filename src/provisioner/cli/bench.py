"""The verb ``bench``: how fast the services of a file are, and whether they have become slower."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from provisioner.cli.bench_options import Asked, measuring_options
from provisioner.cli.drawing import check_place
from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.measuring.history import LEAST_TRIALS
from provisioner.measuring.speech import LONGEST
from provisioner.values.errors import InputError

SPEECH, ENGINE, LLM, LOAD, QUALITY = "tts", "engine", "llm", "load", "quality"
JUDGED = ("tokens", "gate", "threshold", "accept", "plot")
OF = {
    SPEECH: {"runs", "long", "trials", *JUDGED[1:]},
    ENGINE: {"sweep", "refuse", "trials", *JUDGED},
    LLM: {"depth", "model", "url", "key", "trials", *JUDGED},
    LOAD: {"clients", "within", "model", "url", "key", *JUDGED},
    QUALITY: {"parent", "text", "chunks", "refuse"},
}
"""Options that say something of each kind, beside those that say something of all but speech."""
CALLED = {
    SPEECH: "speech",
    ENGINE: "an engine",
    LLM: "what clients see",
    LOAD: "load",
    QUALITY: "what a quant has lost",
}


@click.command()
@verb
@lab_words(names=True)
@option(
    "--kind",
    type=click.Choice((SPEECH, ENGINE, LLM, LOAD, QUALITY)),
    default=SPEECH,
    show_default=True,
    help="What is measured: speech, what an engine computes, what a client sees, or many, or what a quant has lost.",
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
@measuring_options
def bench(session: Session, words: Words, *, kind: str, runs: int, long: int, plot: Path | None, **asked: Any) -> int:
    """Measure services: how they speak (tts), what an engine computes (engine), what clients see (llm), and more.

    Speech: a short text of two sentences in three formats and by all voices of the file, and a long one; medians. With
    containers on the CPU and on a card it says which of them is worth it.

    Engine: llama-bench with the words that it is served with, as it is or with others (--sweep), again and again for
    four and a half minutes, while requests wait in its switch.

    LLM: llama-benchy asks an engine, a gateway, an upstream of the file or any address: how long until the first token,
    how fast it reads and writes, behind contexts of any length (--depth).

    Load: guidellm has many --clients ask at once: what each of them sees, what all get, and how much of it is good.

    Quality: llama-perplexity holds the models of one llama.cpp against their --parent, by a --text of yours.

    Results are kept: --gate fails where figures are worse than those that were accepted, and that is no noise.
    """
    is_shown = bool(asked["history"] or asked["compare"])
    measured = ENGINE if is_shown and kind == SPEECH else kind
    _check_kind(measured, asked)
    if measured == SPEECH:
        return _speech(session, words, Asked(**asked), runs=runs, long=long, plot=plot)
    return _measured(session, words, Asked(**asked), measured, plot, is_shown=is_shown)


def _speech(session: Session, words: Words, asked: Asked, *, runs: int, long: int, plot: Path | None) -> int:
    """Measure speech; ``--trials`` says the same as ``--runs``, and not both are taken."""
    from provisioner.cli.bench_speech import bench_speech

    said = click.get_current_context().get_parameter_source("runs")
    if asked.trials and said is ParameterSource.COMMANDLINE:
        raise InputError("Unable to measure with --runs and --trials", resolution="They say the same: leave out one.")
    return bench_speech(session, words, asked, runs=runs, long=long, plot=plot)


def _measured(session: Session, words: Words, asked: Asked, kind: str, plot: Path | None, *, is_shown: bool) -> int:
    """Measure or show what is no speech."""
    from provisioner.cli.bench_results import check_trials, show

    has_address = asked.url is not None
    names_services = asked.compare is not None and not words.names  # each of its words may name one
    if len(words.names) != (0 if has_address or names_services else 1):
        what = "an address is given, and a name besides" if has_address else "one service is wanted"
        raise InputError(f"Unable to measure: {what}", resolution=f"Run: provision bench FILE CONTAINER --kind {kind}")
    check_trials(asked, LEAST_TRIALS)
    if plot is not None:
        check_place(plot)
    if is_shown:
        return show(session, words, asked, plot)
    if kind == LLM:
        from provisioner.cli.bench_llm import bench_llm

        return bench_llm(session, words, asked, plot)
    if kind == LOAD:
        from provisioner.cli.bench_llm import bench_load

        return bench_load(session, words, asked, plot)
    if kind == QUALITY:
        from provisioner.cli.bench_engine import bench_quality

        return bench_quality(session, words, asked)
    from provisioner.cli.bench_engine import bench_engine

    return bench_engine(session, words, asked, plot)


def _check_kind(kind: str, asked: Mapping[str, Any]) -> None:
    """Raise ``InputError`` where an option was given that says nothing of that kind: it would be left out silently."""
    of_some = {name for names in OF.values() for name in names} | ({*asked} if kind == SPEECH else set())
    of_others = of_some - OF[kind]
    context = click.get_current_context()
    given = [
        parameter.name
        for parameter in context.command.params
        if parameter.name in of_others and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise InputError(
            f"Unable to measure {CALLED[kind]} with --{given[0]}", resolution="Leave it out, or say --kind."
        )
