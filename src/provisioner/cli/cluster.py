"""The verbs of a Proxmox VE cluster: ``cluster check`` and ``cluster watch``; those that mend it join the group."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from provisioner.cli.options import DEFAULT_FILE, Function, complete_host_names, option, understood, verb
from provisioner.cli.session import Session
from provisioner.report.lines import plain_value
from provisioner.report.messages import error_diagnostic
from provisioner.values.errors import ExitCode

if TYPE_CHECKING:  # the world is imported when a verb touches it
    from provisioner.cli.console import Console
    from provisioner.cluster.reaching import Reach
    from provisioner.cluster.watching import Look
    from provisioner.repair.conditions import Diagnosis
    from provisioner.repair.facts import ClusterFacts

file_option = option("-f", "--file", type=click.Path(path_type=Path), help="The lab's file.", metavar="FILE")


last_version_option = option(
    "--last-version",
    "last",
    multiple=True,
    metavar="[NODE=]N",
    help="The config_version that a node which is off has in its files (repeatable).",
)


def host_argument(function: Function) -> Function:
    """The positional host, and the file where it is positional, too: the function gets ``host`` and ``file``.

    To be written above ``file_option``.
    """

    @click.argument("words", nargs=-1, metavar="[FILE] [HOST]", shell_complete=complete_host_names)
    @click.pass_context
    @wraps(function)
    def call(ctx: click.Context, /, *args: Any, words: tuple[str, ...], file: Path | None = None, **rest: Any) -> Any:
        by_variable = ctx.get_parameter_source("file") is ParameterSource.ENVIRONMENT
        chosen = understood(words, (str(file),) if file else (), by_variable=by_variable)
        if len(chosen.names) > 1:
            raise click.UsageError(
                f"Two hosts: {' and '.join(chosen.names)}. One node is enough to find the others.", ctx
            )
        return function(*args, host="".join(chosen.names), file=chosen.file, **rest)

    return call


ELSEWHERE: dict[str, str] = {
    "forget": "provisioner.cli.forgetting",
    "rejoin": "provisioner.cli.rejoining",
    "restore": "provisioner.cli.rejoining",
}
"""Verbs of the group that live in modules of their own: their names, and the modules."""


class ClusterGroup(click.Group):
    """A group that imports the verbs of other modules when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs."""
        return [*super().list_commands(ctx), *ELSEWHERE]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb of that name, or None."""
        if cmd_name not in ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(ELSEWHERE[cmd_name]), cmd_name)
        return command


@click.group(cls=ClusterGroup)
def cluster() -> None:
    """Say how a Proxmox VE cluster is, and mend it.

    HOST is a Proxmox host of the file, or root@ADDRESS[:PORT]. Any node of the cluster does: the others are found.
    """


@cluster.command()
@verb
@host_argument
@file_option
@last_version_option
@option("--html", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write it as a web page, too.")
def check(session: Session, *, host: str, file: Path, last: tuple[str, ...], html: Path | None) -> int:
    """Ask every node of a cluster what it knows, and say what is wrong, what proves it, and what to do.

    Changes nothing. Exits with 3 when something is wrong or not known, with 4 when HOST does not answer.
    """
    from provisioner.cluster.gather import gather
    from provisioner.repair.diagnosis import diagnose, is_healthy
    from provisioner.report.cluster import cluster_content, cluster_text

    versions = dict(last_version(one) for one in last)
    console = session.console
    facts = gather(reach_host(host, file), console.emit)
    found = diagnose(facts, versions)
    console.stop_progress()
    if html is not None:
        _write_page(html, facts, found)
    console.result(cluster_text(facts, found, console.style), **cluster_content(facts, found))
    return ExitCode.DONE if is_healthy(found) else ExitCode.VERIFICATION_FAILED


def _write_page(file: Path, facts: ClusterFacts, found: Sequence[Diagnosis]) -> None:
    from provisioner.report.repair_html import check_html
    from provisioner.values.errors import InputError

    try:
        file.write_text(check_html(facts, found, datetime.now(UTC).isoformat(timespec="seconds")), encoding="utf-8")
    except OSError as error:
        raise InputError(f"Unable to write {file}", details=str(error)) from error


def reach_host(host: str, file: Path | None) -> Reach:
    """How the node is reached that the words of the command line name."""
    from provisioner.cluster.reaching import reach

    return reach(host, file or Path(DEFAULT_FILE))


def last_version(words: str) -> tuple[str, int]:
    """A node (empty for any) and the version that its files have, as ``--last-version`` says them."""
    node, _, number = words.rpartition("=")
    if not number.isdecimal():
        raise click.BadParameter(f"{words!r} is no version, such as 7 or pve3=7.", param_hint="--last-version")
    return node, int(number)


@cluster.command()
@verb
@host_argument
@file_option
@option(
    "--interval", type=click.FloatRange(1), default=10, show_default=True, metavar="S", help="Seconds between looks."
)
@option("--once", is_flag=True, help="Look once, compare with the last run's look; for a timer.")
def watch(session: Session, *, host: str, file: Path, interval: float, once: bool) -> int:
    """Print a line for each change of a cluster: members, quorum, version, packets that are turned away.

    With --once it exits with 0 when nothing got worse since the last look, and with 3 when something did; without it
    watches until it is interrupted. Changes nothing on the nodes.
    """
    import time

    from provisioner.cluster.watching import look_again
    from provisioner.values.errors import ProvisionError

    asked, console, first = reach_host(host, file), session.console, True
    while True:
        try:
            look = look_again(asked, console.emit if first else lambda _event: None)
        except ProvisionError as error:
            if first:
                raise
            console.emit(error_diagnostic(error))
        else:
            console.stop_progress()
            _tell(console, look, is_begin=first)
            if once:
                is_worse = any(one.is_worse for one in look.found)
                return ExitCode.VERIFICATION_FAILED if is_worse else ExitCode.DONE
        first = False
        time.sleep(interval)


def _tell(console: Console, look: Look, *, is_begin: bool) -> None:
    from provisioner.report.cluster import change_text, snapshot_text

    if is_begin:
        console.say(snapshot_text(look.now, look.at, is_first=look.is_first))
        console.line("look", {"at": look.at, "is_first": look.is_first, "state": look.now})
    for one in look.found:
        console.say(change_text(one, look.at, console.style))
        console.line("change", {"at": look.at, **plain_value(one)})
