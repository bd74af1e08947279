"""The verb ``cluster forget``: a node that is off for good is removed; ``runbook run`` does the same."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from provisioner.cli.cluster import DRY, effects, file_option, host_argument, reach_host, require_needed
from provisioner.cli.options import Function, option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode

if TYPE_CHECKING:  # imported when a verb touches a cluster
    from provisioner.cluster.forget_plan import ForgetOptions
    from provisioner.cluster.gather import Reach


def forget_options(function: Function) -> Function:
    """Add the options of a forgotten node: the function gets ``arguments``, those of ``ForgetOptions``."""

    @option("--off-for-good", default="", metavar="NODE", help="Say that this node never comes back as it is.")
    @option("--move-guests-to", default="", metavar="NODE", help="Move its guests' configurations to this member.")
    @option("--archive-guests", is_flag=True, help="Keep its guests' configurations on this machine only.")
    @option("--storages", is_flag=True, help="Take it out of the lists of storages as well.")
    @wraps(function)
    def call(
        *args: Any, off_for_good: str, move_guests_to: str, archive_guests: bool, storages: bool, **rest: Any
    ) -> Any:
        said = {
            "off_for_good": off_for_good,
            "move_guests_to": move_guests_to,
            "archive_guests": archive_guests,
            "storages": storages,
        }
        return function(*args, arguments=said, **rest)

    return call


@click.command()
@verb
@click.argument("node")
@host_argument
@file_option
@forget_options
@option("-y", "--yes", is_flag=True, help="Do it; without it nothing is changed.")
def forget(session: Session, node: str, *, host: str, file: Path, arguments: dict[str, Any], yes: bool) -> int:
    """Remove a node that is off for good, or what is left of one, from its cluster.

    Says what it would do; does it with --yes. A member is removed only if it is off and --off-for-good names it.
    """
    from provisioner.cluster.forget_plan import ForgetOptions

    return run_forget(session, reach_host(host, file), ForgetOptions(node, **arguments), yes=yes)


def run_forget(session: Session, asked: Reach, options: ForgetOptions, *, yes: bool, runbook: str = "") -> int:
    """Do what ``forget`` does; with ``runbook`` it is refused unless the node needs that one."""
    from provisioner.cluster.forget import (
        done_text,
        forget_content,
        forget_node,
        observe,
        plan_text,
        require_preconditions,
    )
    from provisioner.cluster.runbooks import known_runbook

    console = session.console
    observed = observe(asked, options, console.emit)
    plan = observed.plan
    require_needed(runbook, plan.runbooks, options.node, "forget")
    text = plan_text(plan, [known_runbook(name) for name in plan.runbooks], console.style)
    console.stop_progress()
    console.say(text)
    require_preconditions(plan)
    if not yes or not plan.runbooks:
        console.result(DRY if plan.runbooks else "", **forget_content(plan), is_done=not plan.runbooks)
        return ExitCode.DONE
    outcome = forget_node(asked, observed.facts, options, effects(session))
    folders = [str(run.folder) for run in outcome.runs]
    console.stop_progress()
    text = done_text(plan, outcome.references, folders)
    console.result(text, **forget_content(plan), is_done=True, records=folders, references=outcome.references)
    return ExitCode.DONE
