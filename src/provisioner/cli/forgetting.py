"""The verb ``cluster forget``, and what ``runbook run`` shares with it."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from provisioner.cli.cluster import file_option, host_argument, reach_host
from provisioner.cli.options import Function, option, verb
from provisioner.cli.repairing import DRY, hands, require_needed
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode

if TYPE_CHECKING:  # imported when a verb looks at a cluster
    from provisioner.cluster.reaching import Reach
    from provisioner.repair.forgetting import Wish


def forget_options(function: Function) -> Function:
    """What is to be said of the node that is forgotten: the function gets ``words``, the arguments of a ``Wish``."""

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
        return function(*args, words=said, **rest)

    return call


@click.command()
@verb
@click.argument("node")
@host_argument
@file_option
@forget_options
@option("-y", "--yes", is_flag=True, help="Do it; without it nothing is changed.")
def forget(session: Session, node: str, *, host: str, file: Path, words: dict[str, Any], yes: bool) -> int:
    """Remove a node that is off for good, or what is left of one, from its cluster.

    Says what it would do; does it with --yes. A member is removed only if it is off and --off-for-good names it.
    """
    from provisioner.repair.forgetting import Wish

    return run_forget(session, reach_host(host, file), Wish(node, **words), yes=yes)


def run_forget(session: Session, asked: Reach, wish: Wish, *, yes: bool, runbook: str = "") -> int:
    """What ``forget`` does; with ``runbook`` it is refused unless the node needs that one."""
    from provisioner.catalog.runbooks import known_runbook
    from provisioner.report.forgetting import done_text, forgetting_content, plan_text
    from provisioner.workflow import forgetting

    console = session.console
    seen = forgetting.look(asked, wish, console.emit)
    found = seen.forgetting
    require_needed(runbook, found.runbooks, wish.node, "forget")
    plan = plan_text(found, [known_runbook(one) for one in found.runbooks], console.style)
    console.stop_progress()
    console.say(plan)
    forgetting.refuse(found)
    if not yes or not found.runbooks:
        console.result(DRY if found.runbooks else "", **forgetting_content(found), is_done=not found.runbooks)
        return ExitCode.DONE
    outcome = forgetting.forget(asked, seen.facts, wish, hands(session))
    folders = [str(one.folder) for one in outcome.runs]
    console.stop_progress()
    text = done_text(found, outcome.references, folders)
    console.result(text, **forgetting_content(found), is_done=True, records=folders, references=outcome.references)
    return ExitCode.DONE
