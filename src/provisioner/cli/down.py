"""The verb ``down``: containers are stopped, and their data is kept."""

from __future__ import annotations

import click

from provisioner.cli.confirm import DECLINED, confirm_plan, only_known
from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode

NOTHING_RUNS = "Nothing to stop: no container of the file runs."


@click.command()
@verb
@lab_words(names=True)
@option("-y", "--yes", is_flag=True, help="Stop without asking.")
def down(session: Session, words: Words, *, yes: bool) -> int:
    """Stop the containers; their data is kept, and up starts them again."""
    from provisioner.reconcile import stop

    lab = session.open_lab(words.existing(), with_secrets=True, needs="hosts")
    confirm = only_known(lab, words.names, confirm_plan(session.console, yes=yes, nothing=NOTHING_RUNS))
    outcome = stop.down(lab, session.effects(lab, confirm), words.names)
    return ExitCode.DONE if outcome.applied else session.console.fail(DECLINED)
