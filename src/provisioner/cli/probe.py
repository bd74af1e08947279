"""The verb ``probe``: the longest context that an engine really answers."""

from __future__ import annotations

import click

from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode, InputError


@click.command()
@verb
@lab_words(names=True)
@option("--from", "low", type=click.IntRange(1), default=None, metavar="TOKENS", help="The shortest that is tried.")
@option("--to", "high", type=click.IntRange(1), default=None, metavar="TOKENS", help="The longest that is tried.")
def probe(session: Session, words: Words, *, low: int | None, high: int | None) -> int:
    """Start an engine with one context after the other, and say which is the longest that really answers."""
    from provisioner.workflow import probing

    console = session.console
    lab = session.open_lab(words.existing(), with_secrets=True)
    if len(words.names) != 1:
        raise InputError("Unable to probe: name one service", resolution="provision probe CONTAINER")
    effects = session.effects(lab)
    subject = probing.subject_of(lab, effects, words.names[0], low or 0, high or 0)
    found = probing.probe_contexts(lab, effects, subject, {})
    console.stop_progress()
    for one in found.tries:
        console.say(
            f"{one.context:>10,}  {one.outcome:<10} {one.load_s:6.1f} s to load {one.took_s:7.1f} s  {one.words}"
        )
    console.say(f"The longest that answers: {found.longest:,}")
    return ExitCode.DONE
