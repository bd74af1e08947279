"""The verb ``cluster rejoin``: a stale node is brought back; ``runbook run`` does the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from provisioner.cli.cluster import DRY, effects, file_option, host_argument, reach_host, require_needed
from provisioner.cli.options import Function, option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode

if TYPE_CHECKING:  # imported when a verb touches a cluster
    from provisioner.cluster.gather import Reach
    from provisioner.cluster.rejoin import Observed, RejoinOptions
    from provisioner.cluster.runbooks import Runbook

ASK_SSHD = "pvecm add will set PermitRootLogin yes. Put sshd_config back afterwards? [y/N] "


def rejoin_options(function: Function) -> Function:
    """Add the options of a rejoin: the function gets ``give_up`` and ``restore_sshd``."""
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
    from provisioner.cluster.rejoin import RejoinOptions

    return run_rejoin(session, reach_host(host, file), RejoinOptions(node, frozenset(give_up), restore_sshd), yes=yes)


def run_rejoin(session: Session, asked: Reach, options: RejoinOptions, *, yes: bool, runbook: str = "") -> int:
    """Do what ``rejoin`` does; with ``runbook`` it is refused unless the node needs that one."""
    from dataclasses import replace

    from provisioner.cluster.rejoin import left_open, observe, rejoin_content, rejoin_node, require_preconditions
    from provisioner.cluster.text import record_text
    from provisioner.report.style import safe_text

    console = session.console
    observed = observe(asked, options, console.emit)
    needed = _runbook(observed)
    require_needed(runbook, [needed.id] if needed else [], options.node, "rejoin")
    _show(session, observed, needed)
    if not yes:
        require_preconditions(observed)  # else it is judged again, once nobody else repairs the cluster
    content = rejoin_content(observed.situation, observed.proofs, needed)
    if needed is None or not yes:
        console.result(DRY if needed else "", **content, is_done=needed is None)
        return ExitCode.DONE
    if not options.restores_sshd and not observed.unmet and _changes_sshd(observed) and console.can_ask:
        options = replace(options, restores_sshd=console.agrees(ASK_SSHD))
    run = rejoin_node(asked, observed.situation.facts, options, effects(session))
    console.stop_progress()
    text = record_text(run.record, str(run.folder), console.style, with_commands=console.verbose)
    left = left_open(run)
    text = f"{text}\n{safe_text(left)}" if left else text
    console.result(text, **content, is_done=True, record=run.record, folder=str(run.folder), left_open=left)
    return ExitCode.DONE


def _show(session: Session, observed: Observed, runbook: Runbook | None) -> None:
    """Say the plan, or that there is nothing to do."""
    from provisioner.cluster.rejoin import nothing_text, rejoin_text

    console = session.console
    console.stop_progress()
    if runbook is None:
        console.say(nothing_text(observed.situation, console.style))
    else:
        console.say(rejoin_text(observed.situation, observed.proofs, runbook, console.style))


def _runbook(observed: Observed) -> Runbook | None:
    """The runbook that the node needs; None where there is nothing to do."""
    from provisioner.cluster.rejoin_plan import Kind
    from provisioner.cluster.runbooks import known_runbook

    return None if observed.plan.kind is Kind.NOTHING else known_runbook(observed.plan.kind)


def _changes_sshd(observed: Observed) -> bool:
    ready = observed.situation.ready
    return ready is not None and not ready.keeps_root_login
