"""What a rejoin would do and what was proved for it; what a repair did; which backups there are."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from provisioner.catalog.runbooks import Runbook
from provisioner.repair.record import CommandRecord, Record, StepRecord, StepStatus
from provisioner.repair.refusals import Proof, Situation
from provisioner.repair.rejoining import Kind
from provisioner.report.style import PLAIN, Style, duration_text, indent, safe_line, safe_text, table

SSHD_DANGER = (
    "pvecm add writes PermitRootLogin yes into /etc/ssh/sshd_config. Now there stands: {}. "
    "--restore-sshd puts the file back afterwards."
)
MARKS = {
    StepStatus.DONE: ("done", "green"),
    StepStatus.UNCHANGED: ("ok", "dim"),
    StepStatus.LEFT_OUT: ("left out", "dim"),
    StepStatus.FAILED: ("FAIL", "red"),
    StepStatus.NOT_REACHED: ("-", "dim"),
    StepStatus.BEGUN: ("cut", "yellow"),
}
OUTPUT_LINES = 12
RUN_HEAD = ("run", "cluster", "node", "ended", "saved")


def nothing_text(seen: Situation, style: Style = PLAIN) -> str:
    """That there is nothing to do, and by what it is known."""
    return style.paint(
        f"{safe_line(seen.node.name)}: nothing to do. " + safe_text(" ".join(seen.plan.reasons)), "green"
    )


def rejoin_text(seen: Situation, proofs: Sequence[Proof], runbook: Runbook, style: Style = PLAIN) -> str:
    """The plan of a rejoin: why, what was proved, what will be done step by step, and what is dangerous about it."""
    plan = seen.plan
    again = ", taken up again" if plan.resumes else ""
    head = style.paint(f"{safe_line(plan.node)} in cluster {safe_line(plan.cluster)}: {plan.kind.value}{again}", "bold")
    parts = [head, *(indent(safe_text(one)) for one in plan.reasons), "", style.paint("Proved:", "bold")]
    parts += [_proof_text(one, style) for one in proofs]
    parts += ["", style.paint("To be done:", "bold"), indent("Save the node's cluster files, there and here.")]
    parts += [indent(f"{number}. {step.does}") for number, step in enumerate(runbook.steps, start=1)]
    parts += ["", style.paint("Danger:", "bold"), *(indent(safe_text(one)) for one in dangers(seen, runbook))]
    return "\n".join([*parts, indent(f"Way back: {runbook.undo}")])


def dangers(seen: Situation, runbook: Runbook) -> tuple[str, ...]:
    """What is dangerous about this one."""
    found = [runbook.danger]
    if seen.given_up:
        found.append(f"Given up, kept in the backup only: {', '.join(str(one) for one in sorted(seen.given_up))}.")
    if seen.plan.entry is not None and seen.plan.entry.replaces:
        found.append(f"{seen.plan.node} is removed from the cluster's list for a moment, to be added with its address.")
    if seen.ready is not None and not seen.ready.keeps_root_login:
        found.append(SSHD_DANGER.format(seen.ready.root_login or "nothing"))
    return tuple(found)


def rejoin_content(seen: Situation, proofs: Sequence[Proof], runbook: Runbook | None) -> dict[str, Any]:
    """The same for programs."""
    plan = seen.plan
    return {
        "node": plan.node,
        "lead": plan.lead,
        "cluster": plan.cluster,
        "runbook": None if plan.kind is Kind.NOTHING else plan.kind.value,
        "reasons": list(plan.reasons),
        "resumes": plan.resumes,
        "entry": plan.entry,
        "proofs": list(proofs),
        "steps": [{"id": one.id, "does": one.does, "changes": one.changes} for one in runbook.steps] if runbook else [],
        "dangers": list(dangers(seen, runbook)) if runbook else [],
    }


def record_text(record: Record, folder: str = "", style: Style = PLAIN, *, with_commands: bool = True) -> str:
    """What a run did: each step (with its commands and what they said), and how it ended."""
    if not with_commands:
        record = replace(record, steps=tuple(replace(one, commands=()) for one in record.steps))
    lines = [style.paint(f"{safe_line(record.node)} in cluster {safe_line(record.cluster)}: {record.runbook}", "bold")]
    lines += [_step_text(one, style) for one in record.steps]
    if record.error:
        lines.append(style.paint("Failed: ", "red", "bold") + safe_text(record.error))
    kept = [f"Backup: {record.backup}"] if record.backup else []
    return "\n".join([*lines, *kept, *([f"Record: {folder}"] if folder else [])])


def runs_text(rows: Sequence[tuple[str, Record, Sequence[str]]], style: Style = PLAIN) -> str:
    """The runs that left a backup: name, cluster, node, how it ended, and what was saved."""
    if not rows:
        return "There is no backup: no repair was run from this machine."
    cells = [(name, one.cluster, one.node, _ended(one), ", ".join(saved) or "nothing") for name, one, saved in rows]
    return table(RUN_HEAD, cells, style)


def restore_text(record: Record, name: str, saved: Sequence[str], style: Style = PLAIN) -> str:
    """What bringing a backup back would do, and what it means."""
    head = style.paint(f"{safe_line(record.node)}: bring back what {name} saved: {', '.join(saved)}", "bold")
    steps = (
        "Save the node's cluster files as they are now, there and here.",
        "Stop pve-cluster and corosync on the node.",
        "Put config.db, corosync.conf and authkey back, 0600, 0644 and 0400.",
        "Start pve-cluster and corosync.",
    )
    meaning = (
        "The node has its own /etc/pve of that time again, and is as stale as it was: it takes no part in the cluster "
        "until it is repaired again. What was changed in the cluster since stays, and no other node is touched. "
        "While /etc/pve is empty, root's keys are, too: they are copied to authorized_keys2 for that time."
    )
    listed = [indent(f"{number}. {one}") for number, one in enumerate(steps, start=1)]
    return "\n".join(
        [head, "", style.paint("To be done:", "bold"), *listed, "", style.paint("Danger:", "bold"), indent(meaning)]
    )


def _proof_text(proof: Proof, style: Style) -> str:
    mark = style.paint("ok  ", "green") if proof.holds else style.paint("FAIL", "red", "bold")
    if proof.is_note:
        mark = style.paint("note", "yellow")
    first, *rest = safe_text(proof.seen).splitlines() or [""]
    lines = [f"  {mark} {proof.what}: {first}", *(indent(one, 9) for one in rest)]
    if not proof.holds and proof.advice:
        lines.append(indent(style.paint("What to do:", "bold") + " " + safe_text(proof.advice), 7))
    return "\n".join(lines)


def _step_text(step: StepRecord, style: Style) -> str:
    word, colour = MARKS[step.status]
    lines = [f"{style.paint(f'{word:4}', colour)} {step.id}: {step.does}"]
    lines += [indent(_command_text(one), 5) for one in step.commands if step.status is not StepStatus.NOT_REACHED]
    return "\n".join([*lines, *([indent(safe_text(step.message), 5)] if step.message else [])])


def _command_text(command: CommandRecord) -> str:
    code = "?" if command.code is None else str(command.code)
    head = f"{command.host}$ {safe_line(shlex.join(command.argv))}  ({code}, {duration_text(command.elapsed_s)})"
    said = safe_text(command.output).splitlines()
    left_out = [f"… {len(said) - OUTPUT_LINES} lines before"] if len(said) > OUTPUT_LINES else []
    return "\n".join([head, *(indent(one) for one in (*left_out, *said[-OUTPUT_LINES:]))])


def _ended(record: Record) -> str:
    if not record.ended:
        return "killed"
    return "failed" if record.error else record.ended
