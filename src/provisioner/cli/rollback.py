"""The verb ``rollback``: containers go back to a state that was kept."""

from __future__ import annotations

import click

from provisioner.cli.confirm import DECLINED, confirm_plan
from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode


@click.command()
@verb
@lab_words(names=True)
@option("--to", "to", metavar="SNAPSHOT", help="Which state; the newest that had proved itself when left out.")
@option("-y", "--yes", is_flag=True, help="Roll back without asking.")
def rollback(session: Session, words: Words, *, to: str | None, yes: bool) -> int:
    """Bring containers back to a state that was kept; what they are now is kept as a snapshot."""
    from provisioner.reconcile import snapshots

    lab = session.open_lab(words.existing(), with_secrets=True, needs="hosts")
    outcome = snapshots.rollback(lab, session.effects(lab, confirm_plan(session.console, yes=yes)), words.names, to)
    return ExitCode.DONE if outcome.applied else session.console.fail(DECLINED)
