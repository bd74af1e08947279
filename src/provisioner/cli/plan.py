"""The verb ``plan``: what ``up`` would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from provisioner.cli.confirm import show_plan
from provisioner.cli.options import PENDING, Words, lab_words, option, verb, wishes
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode

if TYPE_CHECKING:  # the plan is made when a verb touches the world
    from provisioner.values.plan import Wishes


@click.command()
@verb
@lab_words(names=True)
@wishes
@option("--detailed-exitcode", is_flag=True, help=PENDING)
@option("--markdown", is_flag=True, help="Say it in Markdown, for a comment on a merge request.")
def plan(session: Session, words: Words, wishes: Wishes, *, full: bool, detailed_exitcode: bool, markdown: bool) -> int:
    """Say what up would do; change nothing."""
    from provisioner.reconcile import up

    if markdown and session.console.json:
        raise click.UsageError("Choose one of --markdown and --json.")
    lab = session.open_lab(words.existing(), with_secrets=True)
    made = up.plan(lab, session.effects(lab), wishes, full=full)
    if markdown:
        from provisioner.reconcile.text import plan_markdown

        session.console.say(plan_markdown(made, lab.name))
    else:
        show_plan(session.console, made)
    session.console.count_planned(change.action for change in made.changes)
    return ExitCode.CHANGES_PENDING if detailed_exitcode and not made.is_empty else ExitCode.DONE
