"""The verbs that keep and bring back states of containers: ``snapshot rollback clone``."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from provisioner.cli.confirm import DECLINED, confirm_plan
from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode


@click.command()
@verb
@lab_words(names=True)
@option("--name", "name", metavar="NAME", help="What to call it; the time when left out.")
@option("--list", "listed", is_flag=True, help="Only list what is kept.")
def snapshot(session: Session, words: Words, *, name: str | None, listed: bool) -> int:
    """Keep the state of the containers as it is now."""
    from provisioner.report.snapshots import snapshots_text
    from provisioner.workflow import keeping, surveying

    lab = session.open_lab(words.existing(), with_secrets=True, needs="hosts")
    effects = session.effects(lab)
    if not listed:
        keeping.snapshot(lab, effects, name or f"{datetime.now(UTC):%Y%m%d-%H%M%S}", words.names)
        return ExitCode.DONE
    found = [
        one
        for one in surveying.observe(lab.name, effects.providers).instances
        if one.name in words.names or not words.names
    ]
    session.console.say(snapshots_text(found, session.console.style))
    for one in found:
        session.console.line("snapshots", {"target": one.name, "snapshots": one.snapshots})
    return ExitCode.DONE


@click.command()
@verb
@lab_words(names=True)
@option("--to", "to", metavar="SNAPSHOT", help="Which state; the newest that had proved itself when left out.")
@option("-y", "--yes", is_flag=True, help="Roll back without asking.")
def rollback(session: Session, words: Words, *, to: str | None, yes: bool) -> int:
    """Bring containers back to a state that was kept; what they are now is kept as a snapshot."""
    from provisioner.workflow import keeping

    lab = session.open_lab(words.existing(), with_secrets=True, needs="hosts")
    outcome = keeping.rollback(lab, session.effects(lab, confirm_plan(session.console, yes=yes)), words.names, to)
    return ExitCode.DONE if outcome.applied else session.console.fail(DECLINED)


@click.command()
@verb
@lab_words(names=True)
def clone(session: Session, words: Words) -> int:
    """Copy a container: provision clone [FILE] CONTAINER NEW_NAME.

    The copy is stopped, and an orphan until the file names it.
    """
    from provisioner.workflow import keeping

    if len(words.names) != 2:  # noqa: PLR2004  # from and to
        raise click.UsageError("Name the container to copy and the copy: provision clone CONTAINER NEW_NAME.")
    lab = session.open_lab(words.existing(), with_secrets=True, needs="hosts")
    made = keeping.clone(lab, session.effects(lab), *words.names)
    session.console.result(
        f"{made.name} is a stopped copy of {words.names[0]}, and an orphan until the file names it.",
        container=made.name,
        host=made.host,
    )
    return ExitCode.DONE
