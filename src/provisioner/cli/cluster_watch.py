"""The verb ``cluster watch``: a line for each change of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from provisioner.cli.cluster import file_option, host_argument, reach_host
from provisioner.cli.options import option, verb
from provisioner.cli.session import Session
from provisioner.report.messages import error_diagnostic, plain_value
from provisioner.values.errors import ExitCode

if TYPE_CHECKING:  # imported when a verb touches a cluster
    from provisioner.cli.console import Console
    from provisioner.cluster.watch import Observation


@click.command()
@verb
@host_argument
@file_option
@option(
    "--interval", type=click.FloatRange(1), default=10, show_default=True, metavar="S", help="Seconds between looks."
)
@option("--once", is_flag=True, help="Look once, compare with the last run's look; for a timer.")
def watch(session: Session, *, host: str, file: Path, interval: float, once: bool) -> int:
    """Print a line for each change of a cluster: members, quorum, redundancy, version, packets turned away.

    With --once it exits with 0 when nothing got worse since the last look, and with 3 when something did; without it
    watches until it is interrupted. Changes nothing on the nodes.
    """
    import time

    from provisioner.cluster.watch import observe_again
    from provisioner.values.errors import ProvisionError

    asked, console, first = reach_host(host, file), session.console, True
    while True:
        try:
            observation = observe_again(asked, console.emit if first else lambda _event: None)
        except ProvisionError as error:
            if first:
                raise
            console.emit(error_diagnostic(error))
        else:
            console.stop_progress()
            _tell(console, observation, is_begin=first)
            if once:
                is_worse = any(change.is_worse for change in observation.changes)
                return ExitCode.VERIFICATION_FAILED if is_worse else ExitCode.DONE
        first = False
        time.sleep(interval)


def _tell(console: Console, observation: Observation, *, is_begin: bool) -> None:
    from provisioner.cluster.watch import change_text, snapshot_text

    if is_begin:
        console.say(snapshot_text(observation.now, observation.at, is_first=observation.is_first))
        console.line("look", {"at": observation.at, "is_first": observation.is_first, "state": observation.now})
    for change in observation.changes:
        console.say(change_text(change, observation.at, console.style))
        console.line("change", {"at": observation.at, **plain_value(change)})
