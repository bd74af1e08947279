"""The verbs of runbooks: ``runbook list show run``; ``list`` and ``show`` need no file and no host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from provisioner.cli.cluster import file_option, last_version_option, reach_host
from provisioner.cli.forgetting import forget_options
from provisioner.cli.options import option, verb
from provisioner.cli.rejoining import rejoin_options
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode


@click.group()
def runbook() -> None:
    """Repairs as pages that can be read, and run."""


@runbook.command("list")
@verb
def list_(session: Session) -> int:
    """Print the runbooks that there are."""
    from provisioner.catalog.runbooks import known_runbooks
    from provisioner.report.runbook import content, table_text

    found = list(known_runbooks().values())
    session.console.result(table_text(found, session.console.style), runbooks=[content(one) for one in found])
    return ExitCode.DONE


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from provisioner.catalog.runbooks import known_runbooks

    return [CompletionItem(name) for name in known_runbooks() if name.startswith(incomplete)]


@runbook.command()
@verb
@click.argument("name", metavar="ID", shell_complete=_complete)
def show(session: Session, name: str) -> int:
    """Print a runbook for a human: symptom, danger, what is proved before, steps, and the way back."""
    from provisioner.catalog.runbooks import known_runbook
    from provisioner.report.runbook import content, page_text

    found = known_runbook(name)
    session.console.result(page_text(found, session.console.style), runbook=content(found))
    return ExitCode.DONE


@runbook.command()
@verb
@click.argument("name", metavar="ID", shell_complete=_complete)
@option("--host", default="", metavar="HOST", help="A Proxmox host of the file, or root@ADDRESS[:PORT].")
@file_option
@option("--node", default="", metavar="NODE", help="The node that is repaired or forgotten.")
@forget_options
@rejoin_options
@last_version_option
@option("--off", multiple=True, metavar="NODE", help="lost-quorum: a member that you have seen to be off.")
@option("--programmer", default="internal", metavar="NAME", help="bios-backup: flashrom's programmer.")
@option("--chip", default="", metavar="NAME", help="bios-backup: the chip, where flashrom finds several.")
@option("--output", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="bios-backup: where to.")
@option("-y", "--yes", is_flag=True, help="Do it; without it nothing is changed.")
def run(session: Session, name: str, *, host: str, file: Path | None, **words: Any) -> int:
    """Run a runbook on a host: the same code as cluster rejoin and cluster forget, the same proofs before."""
    from provisioner.catalog.runbooks import known_runbook
    from provisioner.cli.runbook_runs import RUNS, Asked

    found = known_runbook(name)
    return RUNS[found.id](session, reach_host(host, file), Asked(found.id, **words))
