"""What a rejoin would do and what was proved for it; what a repair did; which backups there are."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
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
    reasons = safe_text(" ".join(seen.plan.reasons))
    return style.paint(f"{safe_line(seen.node.name)}: nothing to do. {reasons}", "green")


def rejoin_text(seen: Situation, proofs: Sequence[Proof], runbook: Runbook, style: Style = PLAIN) -> str:
    """The plan of a rejoin: why, what was proved, what will be done step by step, and what is dangerous about it."""
    plan = seen.plan
    again = ", taken up again" if plan.resumes else ""
    head = style.paint(f"{safe_line(plan.node)} in cluster {safe_line(plan.cluster)}: {plan.kind.value}{again}", "bold")
    lines = [head, *_indented(plan.reasons), "", style.paint("Proved:", "bold")]
    lines += [_proof_text(proof, style) for proof in proofs]
    lines += ["", style.paint("To be done:", "bold"), indent("Save the node's cluster files, there and here.")]
    lines += _numbered([step.does for step in runbook.steps])
    lines += ["", style.paint("Danger:", "bold"), *_indented(dangers(seen, runbook))]
    return "\n".join([*lines, indent(f"Way back: {runbook.undo}")])


def _indented(texts: Sequence[str]) -> list[str]:
    return [indent(safe_text(text)) for text in texts]


def _numbered(steps: Sequence[str]) -> list[str]:
    return [indent(f"{number}. {step}") for number, step in enumerate(steps, start=1)]


def dangers(seen: Situation, runbook: Runbook) -> tuple[str, ...]:
    """What is dangerous about this one."""
    texts = [runbook.danger]
    if seen.given_up:
        guests = ", ".join(map(str, sorted(seen.given_up)))
        texts.append(f"Given up, kept in the backup only: {guests}.")
    if seen.plan.entry is not None and seen.plan.entry.replaces:
        texts.append(f"{seen.plan.node} is removed from the cluster's list for a moment, to be added with its address.")
    if seen.ready is not None and not seen.ready.keeps_root_login:
        texts.append(SSHD_DANGER.format(seen.ready.root_login or "nothing"))
    return tuple(texts)


def rejoin_content(seen: Situation, proofs: Sequence[Proof], runbook: Runbook | None) -> dict[str, Any]:
    """The plan of a rejoin and what was proved, for machine-readable output; ``runbook`` is None with nothing to do."""
    plan = seen.plan
    steps = runbook.steps if runbook else ()
    return {
        "node": plan.node,
        "lead": plan.lead,
        "cluster": plan.cluster,
        "runbook": None if plan.kind is Kind.NOTHING else plan.kind.value,
        "reasons": list(plan.reasons),
        "resumes": plan.resumes,
        "entry": plan.entry,
        "proofs": list(proofs),
        "steps": [{"id": step.id, "does": step.does, "changes": step.changes} for step in steps],
        "dangers": list(dangers(seen, runbook)) if runbook else [],
    }


def record_text(record: Record, folder: str = "", style: Style = PLAIN, *, with_commands: bool = True) -> str:
    """What a run did: each step (with its commands and what they said), and how it ended."""
    lines = [style.paint(f"{safe_line(record.node)} in cluster {safe_line(record.cluster)}: {record.runbook}", "bold")]
    for step in record.steps:
        lines += _step_lines(step, style, with_commands=with_commands)
    if record.error:
        lines.append(style.paint("Failed: ", "red", "bold") + safe_text(record.error))
    if record.backup:
        lines.append(f"Backup: {record.backup}")
    if folder:
        lines.append(f"Record: {folder}")
    return "\n".join(lines)


def runs_text(rows: Sequence[tuple[str, Record, Sequence[str]]], style: Style = PLAIN) -> str:
    """The runs that left a backup: name, cluster, node, how it ended, and what was saved."""
    if not rows:
        return "There is no backup: no repair was run from this machine."
    cells = []
    for name, record, saved in rows:
        cells.append((name, record.cluster, record.node, _ended(record), ", ".join(saved) or "nothing"))
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
    lines = [head, "", style.paint("To be done:", "bold"), *_numbered(steps)]
    lines += ["", style.paint("Danger:", "bold"), indent(meaning)]
    return "\n".join(lines)


def _proof_text(proof: Proof, style: Style) -> str:
    first, *rest = safe_text(proof.seen).splitlines() or [""]
    lines = [f"  {_proof_mark(proof, style)} {proof.what}: {first}"]
    lines += [indent(line, 9) for line in rest]
    if not proof.holds and proof.advice:
        lines.append(indent(style.paint("What to do:", "bold") + " " + safe_text(proof.advice), 7))
    return "\n".join(lines)


def _proof_mark(proof: Proof, style: Style) -> str:
    if proof.is_note:
        return style.paint("note", "yellow")
    if proof.holds:
        return style.paint("ok  ", "green")
    return style.paint("FAIL", "red", "bold")


def _step_lines(step: StepRecord, style: Style, *, with_commands: bool) -> list[str]:
    word, colour = MARKS[step.status]
    lines = [f"{style.paint(f'{word:4}', colour)} {step.id}: {step.does}"]
    if with_commands and step.status is not StepStatus.NOT_REACHED:
        lines += [indent(_command_text(command), 5) for command in step.commands]
    if step.message:
        lines.append(indent(safe_text(step.message), 5))
    return lines


def _command_text(command: CommandRecord) -> str:
    code = "?" if command.code is None else str(command.code)
    head = f"{command.host}$ {safe_line(shlex.join(command.argv))}  ({code}, {duration_text(command.elapsed_s)})"
    output = safe_text(command.output).splitlines()
    shown = output[-OUTPUT_LINES:]
    if len(output) > OUTPUT_LINES:
        shown.insert(0, f"… {len(output) - OUTPUT_LINES} lines before")
    return "\n".join([head, *map(indent, shown)])


def _ended(record: Record) -> str:
    if not record.ended:
        return "killed"
    return "failed" if record.error else record.ended
