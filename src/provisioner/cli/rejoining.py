"""The verbs ``cluster rejoin`` and ``cluster restore``: a stale node is brought back, or back to what it was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from provisioner.cli.cluster import file_option, host_argument, reach_host
from provisioner.cli.confirm import YES, ask, can_ask
from provisioner.cli.options import Function, option, verb
from provisioner.cli.repairing import DRY, hands, require_needed
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode

if TYPE_CHECKING:  # imported when a verb looks at a cluster
    from provisioner.catalog.runbooks import Runbook
    from provisioner.cluster.reaching import Reach
    from provisioner.repair.record import Record
    from provisioner.workflow.rejoining import Seen, Wish

ASK_SSHD = "pvecm add will set PermitRootLogin yes. Put sshd_config back afterwards? [y/N] "


def rejoin_options(function: Function) -> Function:
    """What is to be said of the node that is brought back: the function gets ``give_up`` and ``restore_sshd``."""
    give_up = option(
        "--give-up", multiple=True, type=int, metavar="VMID", help="A guest whose configuration there may be lost."
    )
    restore_sshd = option("--restore-sshd", is_flag=True, help="Put sshd_config back after pvecm add has changed it.")
    return give_up(restore_sshd(function))


@click.command()
@verb
@click.argument("node")
@host_argument
@file_option
@rejoin_options
@option("-y", "--yes", is_flag=True, help="Do it; without it nothing is changed.")
def rejoin(
    session: Session, node: str, *, host: str, file: Path, give_up: tuple[int, ...], restore_sshd: bool, yes: bool
) -> int:
    """Bring a stale node back into its cluster: by the light repair where that suffices, else by a forced rejoin.

    Says what was proved and what it would do; does it with --yes. A run that was cut off is taken up again.
    """
    from provisioner.workflow.rejoining import Wish

    return run_rejoin(session, reach_host(host, file), Wish(node, frozenset(give_up), restore_sshd), yes=yes)


def run_rejoin(session: Session, asked: Reach, wish: Wish, *, yes: bool, runbook: str = "") -> int:
    """What ``rejoin`` does; with ``runbook`` it is refused unless the node needs that one."""
    from dataclasses import replace

    from provisioner.report.repair import record_text, rejoin_content
    from provisioner.report.style import safe_text
    from provisioner.workflow import rejoining

    console = session.console
    seen = rejoining.look(asked, wish, console.emit)
    needed = _runbook(seen)
    require_needed(runbook, [needed.id] if needed else [], wish.node, "rejoin")
    is_needed = _shown(session, seen)
    if not yes:
        rejoining.refuse(seen)  # else it is judged again, once nobody else repairs the cluster
    content = rejoin_content(seen.situation, seen.proofs, needed)
    if not (is_needed and yes):
        console.result(DRY if is_needed else "", **content, is_done=not is_needed)
        return ExitCode.DONE
    if not wish.restores_sshd and not seen.refused and _changes_sshd(seen) and can_ask(console):
        wish = replace(wish, restores_sshd=ask(console, ASK_SSHD).lower() in YES)
    run = rejoining.rejoin(asked, wish, hands(session))
    console.stop_progress()
    text = record_text(run.record, str(run.folder), console.style, with_commands=console.verbose)
    left = rejoining.left_open(run)
    text = f"{text}\n{safe_text(left)}" if left else text
    console.result(text, **content, is_done=True, record=run.record, folder=str(run.folder), left_open=left)
    return ExitCode.DONE


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
    from provisioner.report.repair import restore_text, runs_text
    from provisioner.workflow import restoring

    console = session.console
    if not run:
        rows = restoring.saved_runs()
        console.result(runs_text(rows, console.style), runs=[_row(*one) for one in rows])
        return ExitCode.DONE
    chosen = restoring.chosen_run(run)
    seen = restoring.look(reach_host(host, file), chosen, console.emit)
    console.stop_progress()
    console.say(restore_text(chosen.record, chosen.name, restoring.saved_files(chosen), console.style))
    restoring.refuse(seen)
    if not yes:
        console.result(DRY, run=chosen.name, node=chosen.record.node, is_done=False)
        return ExitCode.DONE
    said = restoring.restore(seen, hands(session))
    console.stop_progress()
    console.result(said, run=chosen.name, node=chosen.record.node, is_done=True)
    return ExitCode.DONE


def _shown(session: Session, seen: Seen) -> bool:
    """Say the plan; whether there is anything to do."""
    from provisioner.report.repair import nothing_text, rejoin_text

    console = session.console
    console.stop_progress()
    runbook = _runbook(seen)
    if runbook is None:
        console.say(nothing_text(seen.situation, console.style))
        return False
    console.say(rejoin_text(seen.situation, seen.proofs, runbook, console.style))
    return True


def _row(name: str, record: Record, saved: tuple[str, ...]) -> dict[str, Any]:
    return {"run": name, "record": record, "saved": saved}


def _runbook(seen: Seen) -> Runbook | None:
    from provisioner.catalog.runbooks import known_runbook
    from provisioner.repair.rejoining import Kind

    return None if seen.plan.kind is Kind.NOTHING else known_runbook(seen.plan.kind)


def _changes_sshd(seen: Seen) -> bool:
    ready = seen.situation.ready
    return ready is not None and not ready.keeps_root_login
