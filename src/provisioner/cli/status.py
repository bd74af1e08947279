"""The verb ``status``: what runs where, how it does, and what drifted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode
from provisioner.values.events import Diagnostic

if TYPE_CHECKING:  # the plan is made when a verb touches the world
    from provisioner.lab.opening import Lab


@click.command()
@verb
@lab_words(names=True)
@option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The same as: report FILE; for one more release.",
)
def status(session: Session, words: Words, *, html: Path | None) -> int:
    """Say what runs where, how it does, and what drifted from the file."""
    from provisioner.cli.gateways import say_endpoints
    from provisioner.reconcile import observe
    from provisioner.reconcile.text import status_text

    console = session.console
    lab = session.open_lab(words.existing(), with_secrets=True)
    lab.check_targets(words.names)
    if html is not None:
        return _write_page(session, lab, html)
    containers = observe.status(lab, session.effects(lab), words.names)
    console.say(status_text(containers, console.style))
    for one in containers:
        console.line("container", one)
        if one.drift:
            console.line("drift", {"target": one.name, "changes": one.drift})
        if one.orphan:
            console.line("orphan", {"target": one.name, "host": one.host})
    say_endpoints(session, lab, {one.name: one.address for one in containers}, words.names)
    return ExitCode.DONE


def _write_page(session: Session, lab: Lab, file: Path) -> int:
    """The page of ``report``, of the whole lab, and a line that says whose it is."""
    from provisioner.cli.report import page_named, written

    page = page_named(str(file))
    note = "status --html is the verb report from now on, and goes with the next release"
    session.console.emit(Diagnostic("warning", note, resolution=f"Write: provision report {page}"))
    return written(session, lab, page)
