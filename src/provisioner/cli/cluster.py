"""The group of verbs for Proxmox VE clusters, the arguments that they share, and what repairs have in common."""

from __future__ import annotations

from collections.abc import Collection
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from provisioner.cli.options import DEFAULT_FILE, Function, complete_host_names, option, understood
from provisioner.cli.session import Session
from provisioner.values.errors import PreflightError

if TYPE_CHECKING:  # imported when a verb touches a cluster
    from provisioner.cluster.gather import Reach
    from provisioner.cluster.run import Effects

file_option = option("-f", "--file", type=click.Path(path_type=Path), help="The lab's file.", metavar="FILE")
last_version_option = option(
    "--last-version",
    "last",
    multiple=True,
    metavar="[NODE=]N",
    help="The config_version that a node which is off has in its files (repeatable).",
)
DRY = "Nothing was changed. The same command with --yes does it."
VERBS = ("check", "watch", "forget", "rejoin", "restore")
"""The verbs of the group, in the order of its help; each is in a module of its own, ``cluster_<verb>``."""


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


class ClusterGroup(click.Group):
    """A group that imports a verb when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """All verbs."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's signature
        """The verb of that name, or None."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = getattr(import_module(f"provisioner.cli.cluster_{cmd_name}"), cmd_name)
        return command


@click.group(cls=ClusterGroup)
def cluster() -> None:
    """Say how a Proxmox VE cluster is, and mend it.

    HOST is a Proxmox host of the file, or root@ADDRESS[:PORT]. Any node of the cluster does: the others are found.
    """


def reach_host(host: str, file: Path | None) -> Reach:
    """Return how the node is reached that the words of the command line name."""
    from provisioner.cluster.gather import reach

    return reach(host, file or Path(DEFAULT_FILE))


def last_version(words: str) -> tuple[str, int]:
    """A node (empty for any) and the version that its files have, as ``--last-version`` says them."""
    node, _, number = words.rpartition("=")
    if not number.isdecimal():
        raise click.BadParameter(f"{words!r} is no version, such as 7 or pve3=7.", param_hint="--last-version")
    return node, int(number)


def effects(session: Session) -> Effects:
    """The effects that a repair gets: how playbooks are run, and where its progress is said."""
    from provisioner.cluster.run import Effects
    from provisioner.reconcile.runner import run_playbook

    return Effects(session.run_playbook or run_playbook, session.console.emit)


def require_needed(runbook: str, needed: Collection[str], node: str, verb: str) -> None:
    """Raise ``PreflightError`` when ``runbook`` was asked for (empty: none was) and the node needs others."""
    if runbook and runbook not in needed:
        raise PreflightError(
            f"Unable to run {runbook} for {node}: that is not what it needs",
            details=f"It needs: {', '.join(needed) or 'nothing'}",
            resolution=f"See: provision cluster {verb} {node}",
        )
