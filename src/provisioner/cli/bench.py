"""The verb ``bench``: how fast the services of a file are."""

from __future__ import annotations

import click

from provisioner.bench import LONGEST
from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.errors import ExitCode

KINDS = ("tts",)


@click.command()
@verb
@lab_words(names=True)
@option("--kind", type=click.Choice(KINDS), default="tts", show_default=True, help="What is measured: speech.")
@option("--runs", type=click.IntRange(1, 99), default=3, show_default=True, help="How often each text is spoken.")
@option(
    "--long",
    type=click.IntRange(0, LONGEST),
    default=2000,
    show_default=True,
    metavar="CHARACTERS",
    help="Length of the long text; 0 leaves it out.",
)
def bench(session: Session, words: Words, *, kind: str, runs: int, long: int) -> int:
    """Have services speak and take the time: first audio, all of it, characters in a second, memory.

    A short text of two sentences in three formats and by all voices of the file, and a long one; medians. With
    containers on the CPU and on a card it says which of them is worth it.
    """
    from provisioner.cli.containers import Containers
    from provisioner.report.bench import bench_content, bench_text
    from provisioner.workflow.benching import measure, speakers_of

    lab = session.open_lab(words.existing(), needs_secrets=False)
    lab.check_targets(words.names)
    speakers = speakers_of(lab, words.names)
    containers = Containers(session, lab)
    there = {one: containers.running(one.container) for one in speakers}
    found = [measure(one, there[one], runs=runs, long=long, emit=session.console.emit) for one in speakers]
    session.console.result(bench_text(found), kind=kind, **bench_content(found))
    return ExitCode.DONE
