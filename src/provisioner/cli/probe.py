"""The verb ``probe``: the longest context that an engine really answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from provisioner.cli.drawing import check_place, draw
from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode, InputError

if TYPE_CHECKING:
    from provisioner.measuring.probe import Probed


@click.command()
@verb
@lab_words(names=True)
@option("--from", "low", type=click.IntRange(1), default=None, metavar="TOKENS", help="The shortest that is tried.")
@option("--to", "high", type=click.IntRange(1), default=None, metavar="TOKENS", help="The longest that is tried.")
@option("--write", is_flag=True, help="Write what was found into the file.")
@option("--plot", type=click.Path(path_type=Path, dir_okay=False), default=None, help="Draw what was tried (SVG).")
@option("--refuse", is_flag=True, help="Go on where requests wait for longer than their switch has them wait.")
@option("--yes", is_flag=True, help="Do not ask.")
def probe(
    session: Session,
    words: Words,
    *,
    low: int | None,
    high: int | None,
    write: bool,
    plot: Path | None,
    refuse: bool,
    yes: bool,
) -> int:
    """Find the longest context with which an engine starts and really answers.

    It is started with one context after the other. Each time a prompt is answered that takes 95 % of it: the engine
    has to count as many tokens as were sent, and another token near the beginning, the middle and the end of it has to
    change the answer. What was tried is kept, so that the next run goes on there. Meanwhile requests wait in its
    switch, and are served between two tries.
    """
    from provisioner.cli.confirm import require_yes
    from provisioner.measuring import probe
    from provisioner.measuring.probe import foretold_text, probed_text
    from provisioner.measuring.probe_picture import probed_svg

    console = session.console
    if len(words.names) != 1:
        raise InputError("Unable to probe: one engine is wanted", resolution="Run: provision probe FILE CONTAINER")
    if plot is not None:
        check_place(plot)
    lab = session.open_lab(words.existing(), with_secrets=True)
    effects = session.effects(lab)
    subject = probe.subject_of(lab, effects, words.names[0], low or 0, high or 0)
    known = probe.known_of(lab, subject)
    tries = probe.most_tries(subject, known)
    if tries and not yes:
        require_yes(console, foretold_text(subject, tries), "Not tried")
    found = probe.probe_contexts(lab, effects, subject, known, may_refuse=refuse)
    console.stop_progress()
    written = {"plot": str(plot)} if plot else {}
    console.result(
        probed_text(found, console.style),
        service=subject.service.address,
        longest=found.longest,
        option=subject.trial.option,
        tried=[{"context": one.context, "outcome": one.outcome, "words": one.words} for one in found.tries],
        **written,
    )
    if plot is not None:
        draw(plot, probed_svg(found))
    if write and found.longest:
        _write(session, words.existing(), found)
    return ExitCode.DONE if found.longest else ExitCode.VERIFICATION_FAILED


def _write(session: Session, file: Path, found: Probed) -> None:
    """Put it into the file, and say what takes it from there."""
    from provisioner.labfile.editing import write_number

    service, option_name = found.subject.service, found.subject.trial.option
    place = ("containers", service.container, "services", service.role, option_name)
    words = f"{option_name}: {found.longest}"
    if write_number(file, place, found.longest):
        session.console.say(f"Wrote {words} for {service.address}. Run: provision up {file}")
    else:
        session.console.say(f"{service.address} has {words} already.")
