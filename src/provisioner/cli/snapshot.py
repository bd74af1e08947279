"""The verb ``snapshot``: the state of containers is kept as it is now."""

from __future__ import annotations

from datetime import UTC, datetime

import click

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
    from provisioner.reconcile import observe, snapshots
    from provisioner.reconcile.snapshots import snapshots_text

    lab = session.open_lab(words.existing(), with_secrets=True, needs="hosts")
    effects = session.effects(lab)
    if not listed:
        snapshots.snapshot(lab, effects, name or f"{datetime.now(UTC):%Y%m%d-%H%M%S}", words.names)
        return ExitCode.DONE
    there = observe.observe(lab.name, effects.providers).instances
    names = words.names or tuple(container.name for container in there)
    found = [container for container in there if container.name in names]
    session.console.say(snapshots_text(found, session.console.style))
    for one in found:
        session.console.line("snapshots", {"target": one.name, "snapshots": one.snapshots})
    return ExitCode.DONE
