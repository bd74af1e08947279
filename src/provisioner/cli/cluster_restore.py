"""The verb ``cluster restore``: a node's cluster files as a repair has saved them."""

from __future__ import annotations

from pathlib import Path

import click

from provisioner.cli.cluster import DRY, effects, file_option, host_argument, reach_host
from provisioner.cli.options import option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode


@click.command()
@verb
@click.argument("run", default="", metavar="[RUN]")
@host_argument
@file_option
@option("-y", "--yes", is_flag=True, help="Do it; without it nothing is changed.")
def restore(session: Session, run: str, *, host: str, file: Path, yes: bool) -> int:
    """List what repairs have saved; with RUN and HOST bring a node's cluster files back as they were.

    The node is as stale then as it was. Says what it would do; does it with --yes.
    """
    from provisioner.cluster.restore import (
        chosen_run,
        observe,
        require_preconditions,
        restore_node,
        restore_text,
        saved_files,
        saved_runs,
    )
    from provisioner.cluster.text import runs_text

    console = session.console
    if not run:
        rows = saved_runs()
        content = [{"run": name, "record": record, "saved": saved} for name, record, saved in rows]
        console.result(runs_text(rows, console.style), runs=content)
        return ExitCode.DONE
    chosen = chosen_run(run)
    observed = observe(reach_host(host, file), chosen, console.emit)
    console.stop_progress()
    console.say(restore_text(chosen.record, chosen.name, saved_files(chosen), console.style))
    require_preconditions(observed)
    if not yes:
        console.result(DRY, run=chosen.name, node=chosen.record.node, is_done=False)
        return ExitCode.DONE
    said = restore_node(observed, effects(session))
    console.stop_progress()
    console.result(said, run=chosen.name, node=chosen.record.node, is_done=True)
    return ExitCode.DONE
