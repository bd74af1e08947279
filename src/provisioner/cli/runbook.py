"""The verbs of runbooks: ``runbook list show run``; ``list`` and ``show`` need no file and no host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from provisioner.cli.cluster import DRY, effects, file_option, last_version, last_version_option, reach_host
from provisioner.cli.cluster_forget import forget_options, run_forget
from provisioner.cli.cluster_rejoin import rejoin_options, run_rejoin
from provisioner.cli.options import option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode, InputError

if TYPE_CHECKING:
    from provisioner.cluster.facts import ClusterFacts
    from provisioner.cluster.gather import Reach


@click.group()
def runbook() -> None:
    """Repairs as pages that can be read, and run."""


@runbook.command("list")
@verb
def list_(session: Session) -> int:
    """Print the runbooks that there are."""
    from provisioner.cluster.runbooks import known_runbooks, runbook_content, runbooks_text

    found = list(known_runbooks().values())
    session.console.result(runbooks_text(found, session.console.style), runbooks=list(map(runbook_content, found)))
    return ExitCode.DONE


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from provisioner.cluster.runbooks import known_runbooks

    return [CompletionItem(name) for name in known_runbooks() if name.startswith(incomplete)]


@runbook.command()
@verb
@click.argument("name", metavar="ID", shell_complete=_complete)
def show(session: Session, name: str) -> int:
    """Print a runbook for a human: symptom, danger, what is proved before, steps, and the way back."""
    from provisioner.cluster.runbooks import known_runbook, runbook_content, runbook_text

    found = known_runbook(name)
    session.console.result(runbook_text(found, session.console.style), runbook=runbook_content(found))
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
def run(session: Session, name: str, *, host: str, file: Path | None, **arguments: Any) -> int:
    """Run a runbook on a host: the same code as cluster rejoin and cluster forget, the same proofs before."""
    from provisioner.cluster.runbooks import known_runbook

    found = known_runbook(name)
    return RUNS[found.id](session, reach_host(host, file), RunbookOptions(found.id, **arguments))


@dataclass(frozen=True, slots=True)
class RunbookOptions:
    """The options of ``run``; ``arguments`` are those of forget, ``last`` what is known of nodes that are off."""

    runbook: str
    node: str
    arguments: Mapping[str, Any]
    give_up: tuple[int, ...]
    restore_sshd: bool
    last: tuple[str, ...]
    off: tuple[str, ...]
    programmer: str
    chip: str
    output: Path | None
    yes: bool

    def named(self) -> str:
        """The node that is meant; ``InputError`` when none is."""
        if self.node:
            return self.node
        raise InputError(
            f"Unable to run {self.runbook}: no node is named", resolution="Say which one is meant: --node NODE"
        )


def _forget(session: Session, host: Reach, options: RunbookOptions) -> int:
    from provisioner.cluster.forget_plan import ForgetOptions

    chosen = ForgetOptions(options.named(), **options.arguments)
    return run_forget(session, host, chosen, yes=options.yes, runbook=options.runbook)


def _rejoin(session: Session, host: Reach, options: RunbookOptions) -> int:
    from provisioner.cluster.rejoin import RejoinOptions

    chosen = RejoinOptions(options.named(), frozenset(options.give_up), options.restore_sshd)
    return run_rejoin(session, host, chosen, yes=options.yes, runbook=options.runbook)


def _restore_quorum(session: Session, host: Reach, options: RunbookOptions) -> int:
    from provisioner.cluster.quorum import observe, plan_text, quorum_content, require_preconditions, restore_quorum

    console = session.console
    observed = observe(host, options.off, console.emit)
    console.stop_progress()
    console.say(plan_text(observed.plan, observed.signs, console.style))
    content = quorum_content(observed.plan, observed.signs)
    if not observed.plan.is_needed:
        console.result("", **content, is_done=True)
        return ExitCode.DONE
    require_preconditions(observed.plan)
    if not options.yes:
        console.result(DRY, **content, is_done=False)
        return ExitCode.DONE
    folder = restore_quorum(host, options.off, effects(session))
    console.stop_progress()
    text = (
        f"{observed.plan.host} is quorate and /etc/pve can be written.\n"
        "The expected votes rise again by themselves with each node that comes back.\n"
        f"Record: {folder}"
    )
    console.result(text, **content, is_done=True, records=[folder])
    return ExitCode.DONE


def _copy_chip(session: Session, host: Reach, options: RunbookOptions) -> int:
    from provisioner.cluster.firmware import copy_chip, copy_text

    copy = copy_chip(host, options.programmer, options.chip, options.output, effects(session))
    session.console.stop_progress()
    text = copy_text(copy.host, copy.file, copy.size, copy.sha256, copy.regions)
    session.console.result(text, **{field.name: getattr(copy, field.name) for field in fields(copy)})
    return ExitCode.DONE


def _before_power_on(session: Session, host: Reach, options: RunbookOptions) -> int:
    """Say what ``cluster check`` says of the one node."""
    from provisioner.cluster.diagnosis import diagnose
    from provisioner.cluster.gather import gather
    from provisioner.cluster.text import cluster_content, cluster_text

    node, console = options.named(), session.console
    versions = dict(last_version(words) for words in options.last)
    facts = gather(host, console.emit)
    console.stop_progress()
    _require_member(facts, node)
    found = tuple(diagnosis for diagnosis in diagnose(facts, versions) if diagnosis.node == node)
    said = "" if found else f"\n{node} answers, and nothing is wrong with it."
    console.result(f"{cluster_text(facts, found, console.style)}{said}", **cluster_content(facts, found))
    return ExitCode.VERIFICATION_FAILED if found else ExitCode.DONE


def _require_member(facts: ClusterFacts, node: str) -> None:
    from provisioner.cluster.forget_plan import Leftovers, known_names

    known = {*known_names(facts, Leftovers()), *(silent.name for silent in facts.silent)}
    if node not in known:
        raise InputError(
            f"Unable to find node {node}",
            details=f"Known are: {', '.join(sorted(known))}",
            resolution="Name one of them: --node NODE",
        )


RUNS: Mapping[str, Callable[[Session, Reach, RunbookOptions], int]] = {
    "bios-backup": _copy_chip,
    "ghost-node": _forget,
    "lost-quorum": _restore_quorum,
    "power-on-check": _before_power_on,
    "removed-node-leftovers": _forget,
    "retired-node": _forget,
    "stale-corosync-behind": _rejoin,
    "stale-corosync-rejoin": _rejoin,
}
