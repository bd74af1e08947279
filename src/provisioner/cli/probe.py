"""The verb ``probe``: the longest context that an engine really answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode, InputError, PreflightError

if TYPE_CHECKING:
    from provisioner.measuring.trials import Subject

QUESTION = "Do you want to go on? [y/N] "


@click.command()
@verb
@lab_words(names=True)
@option("--from", "low", type=click.IntRange(1), default=None, metavar="TOKENS", help="The shortest that is tried.")
@option("--to", "high", type=click.IntRange(1), default=None, metavar="TOKENS", help="The longest that is tried.")
@option("--yes", is_flag=True, help="Do not ask.")
def probe(session: Session, words: Words, *, low: int | None, high: int | None, yes: bool) -> int:
    """Find the longest context with which an engine starts and really answers.

    It is started with one context after the other. Each time a prompt is answered that takes 95 % of it: the engine
    has to count as many tokens as were sent, and another token near the beginning, the middle and the end of it has to
    change the answer. What was tried is kept, so that the next run goes on there. Meanwhile requests wait in its
    switch, and are served between two tries.
    """
    from provisioner.report.probe import probed_text
    from provisioner.workflow import probing

    console = session.console
    if len(words.names) != 1:
        raise InputError("Unable to probe: one engine is wanted", resolution="Run: provision probe FILE CONTAINER")
    lab = session.open_lab(words.existing(), with_secrets=True)
    effects = session.effects(lab)
    subject = probing.subject_of(lab, effects, words.names[0], low or 0, high or 0)
    known = probing.known_of(lab, subject)
    tries = probing.most_tries(subject, known)
    if tries and not yes:
        _confirm(session, subject, tries)
    found = probing.probe_contexts(lab, effects, subject, known)
    console.stop_progress()
    console.result(
        probed_text(found, console.style),
        service=subject.service.address,
        longest=found.longest,
        option=subject.trial.option,
        tried=[{"context": one.context, "outcome": one.outcome, "words": one.words} for one in found.tries],
    )
    return ExitCode.DONE if found.longest else ExitCode.VERIFICATION_FAILED


def _confirm(session: Session, subject: Subject, tries: int) -> None:
    """Say how long it may take, and ask; ``PreflightError`` where nobody can be asked, or the answer is no."""
    from provisioner.cli.confirm import YES, ask, can_ask
    from provisioner.report.probe import foretold_text

    session.console.say(foretold_text(subject, tries))
    if not can_ask(session.console):
        raise PreflightError("Not tried: nobody can be asked", resolution="Run the same command with --yes.")
    if ask(session.console, QUESTION).lower() not in YES:
        raise PreflightError("Not tried: the answer was no", details="Nothing was touched.")
