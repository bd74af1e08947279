"""What ``runbook run`` does for each runbook; those of rejoin and forget are theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provisioner.cli.cluster import last_version
from provisioner.cli.forgetting import run_forget
from provisioner.cli.rejoining import run_rejoin
from provisioner.cli.repairing import DRY, hands
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode, InputError

if TYPE_CHECKING:
    from provisioner.cluster.reaching import Reach
    from provisioner.repair.facts import ClusterFacts


@dataclass(frozen=True, slots=True)
class Asked:
    """The words of the command line; ``words`` are what forget takes, ``last`` what is known of nodes that are off."""

    runbook: str
    node: str
    words: Mapping[str, Any]
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


def _forget(session: Session, host: Reach, asked: Asked) -> int:
    from provisioner.repair.forgetting import Wish

    return run_forget(session, host, Wish(asked.named(), **asked.words), yes=asked.yes, runbook=asked.runbook)


def _rejoin(session: Session, host: Reach, asked: Asked) -> int:
    from provisioner.workflow.rejoining import Wish

    wish = Wish(asked.named(), frozenset(asked.give_up), asked.restore_sshd)
    return run_rejoin(session, host, wish, yes=asked.yes, runbook=asked.runbook)


def _regain(session: Session, host: Reach, asked: Asked) -> int:
    from provisioner.report.regaining import plan_text, regaining_content
    from provisioner.workflow import regaining

    console = session.console
    seen = regaining.look(host, asked.off, console.emit)
    console.stop_progress()
    console.say(plan_text(seen.regaining, seen.signs, console.style))
    content = regaining_content(seen.regaining, seen.signs)
    if not seen.regaining.is_needed:
        console.result("", **content, is_done=True)
        return ExitCode.DONE
    regaining.refuse(seen.regaining)
    if not asked.yes:
        console.result(DRY, **content, is_done=False)
        return ExitCode.DONE
    folder = regaining.regain(host, asked.off, hands(session))
    console.stop_progress()
    text = (
        f"{seen.regaining.host} is quorate and /etc/pve can be written.\n"
        "The expected votes rise again by themselves with each node that comes back.\n"
        f"Record: {folder}"
    )
    console.result(text, **content, is_done=True, records=[folder])
    return ExitCode.DONE


def _copy_chip(session: Session, host: Reach, asked: Asked) -> int:
    from provisioner.report.firmware import copy_text
    from provisioner.workflow.firmware import copy_chip

    copy = copy_chip(host, asked.programmer, asked.chip, asked.output, hands(session))
    session.console.stop_progress()
    text = copy_text(copy.host, copy.file, copy.size, copy.sha256, copy.regions)
    session.console.result(text, **{one.name: getattr(copy, one.name) for one in fields(copy)})
    return ExitCode.DONE


def _before_power_on(session: Session, host: Reach, asked: Asked) -> int:
    """What ``cluster check`` says of the one node."""
    from provisioner.cluster.gather import gather
    from provisioner.repair.diagnosis import diagnose
    from provisioner.report.cluster import cluster_content, cluster_text

    node, console = asked.named(), session.console
    versions = dict(last_version(one) for one in asked.last)
    facts = gather(host, console.emit)
    console.stop_progress()
    _require_member(facts, node)
    found = tuple(one for one in diagnose(facts, versions) if one.node == node)
    said = "" if found else f"\n{node} answers, and nothing is wrong with it."
    console.result(f"{cluster_text(facts, found, console.style)}{said}", **cluster_content(facts, found))
    return ExitCode.VERIFICATION_FAILED if found else ExitCode.DONE


def _require_member(facts: ClusterFacts, node: str) -> None:
    from provisioner.repair.forgetting import known_names
    from provisioner.repair.leftovers import Leftovers

    known = {*known_names(facts, Leftovers()), *(one.name for one in facts.silent)}
    if node not in known:
        raise InputError(
            f"Unable to find node {node}",
            details=f"Known are: {', '.join(sorted(known))}",
            resolution="Name one of them: --node NODE",
        )


RUNS: Mapping[str, Callable[[Session, Reach, Asked], int]] = {
    "bios-backup": _copy_chip,
    "ghost-node": _forget,
    "lost-quorum": _regain,
    "power-on-check": _before_power_on,
    "removed-node-leftovers": _forget,
    "retired-node": _forget,
    "stale-corosync-behind": _rejoin,
    "stale-corosync-rejoin": _rejoin,
}
