"""The verb ``clone``: a container is copied, and other values may be tried in the copy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from provisioner.cli.confirm import DECLINED, confirm_plan, show_only
from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode, InputError

if TYPE_CHECKING:  # the lab is read when a verb works with it
    from provisioner.lab.opening import Lab
    from provisioner.reconcile.clone import Wanted


@click.command()
@verb
@lab_words(names=True)
@option(
    "--set",
    "settings",
    multiple=True,
    metavar="PATH=VALUE",
    help="Try this in the copy alone: services.ROLE.OPTION=VALUE; may be repeated.",
)
@option("-y", "--yes", is_flag=True, help="With --set: copy without asking.")
@option("--dry-run", is_flag=True, help="With --set: say what would be done, and touch nothing.")
def clone(session: Session, words: Words, *, settings: tuple[str, ...], yes: bool, dry_run: bool) -> int:
    """Copy a container: provision clone [FILE] CONTAINER NEW_NAME.

    The copy is stopped, and an orphan until the file names it. With --set it is written into the file as a copy, gets
    other values of options, is started and proves itself; the original runs on and is left alone.
    """
    from provisioner.reconcile import snapshots

    if len(words.names) != 2:  # noqa: PLR2004  # from and to
        raise click.UsageError("Name the container to copy and the copy: provision clone CONTAINER NEW_NAME.")
    if settings:
        return _clone_to_try(session, words, settings, yes=yes, dry_run=dry_run)
    if dry_run:
        raise click.UsageError("--dry-run goes with --set.")
    lab = session.open_lab(words.existing(), with_secrets=True, needs="hosts")
    made = snapshots.clone(lab, session.effects(lab), *words.names)
    session.console.result(
        f"{made.name} is a stopped copy of {words.names[0]}, and an orphan until the file names it.",
        container=made.name,
        host=made.host,
    )
    return ExitCode.DONE


def _clone_to_try(session: Session, words: Words, settings: tuple[str, ...], *, yes: bool, dry_run: bool) -> int:
    """Copy a running container with other values, and say how to compare and how to take it away."""
    from provisioner.lab.opening import open_lab
    from provisioner.reconcile import clone

    console, file = session.console, words.existing()
    source, name = words.names
    wanted = clone.Wanted(source, name, clone.settings_of(settings))
    lab = open_lab(file, run_secret_command=True)  # its warnings are said with those of the copy
    before = clone.read_text(file)
    after = clone.text_with_copy(lab, before, wanted)
    with_copy = _opened_with_copy(session, file, after, wanted)
    confirm = show_only(console) if dry_run else confirm_plan(console, yes=yes)
    effects = session.effects(with_copy, confirm)
    outcome = clone.make_copy(lab, with_copy, wanted, effects, clone.NewText(file, before, after))
    if dry_run:
        console.count_planned(change.action for change in outcome.plan.changes)
        return ExitCode.DONE
    if not outcome.applied:
        return console.fail(DECLINED)
    console.result(
        f"{name} is a copy of {source} with {wanted.words}, and has proved itself; {source} was left alone.\n"
        f"Measure both with provision bench, then: provision bench {file} --compare {source} {name}\n"
        f"Take it away: provision destroy {file} {name}",
        container=name,
        copy_of=source,
        settings={".".join(setting.path): setting.written for setting in wanted.settings},
    )
    return ExitCode.DONE


def _opened_with_copy(session: Session, file: Path, text: str, wanted: Wanted) -> Lab:
    """The lab as the file will say it; raises ``InputError`` where the copy would be wrong in it."""
    try:
        return session.open_lab(file, with_secrets=True, content=text.encode())
    except InputError as error:
        lines = [re.sub(rf"^{re.escape(str(file))}:\d+:\d+: ", "", line) for line in error.details.splitlines()]
        raise InputError(
            wanted.what, details="\n".join(lines), resolution="Say another value with --set; nothing was touched."
        ) from error
