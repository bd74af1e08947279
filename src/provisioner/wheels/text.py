"""Stacks of wheels and what was found of them: a table, and a line with its reason for each package; text and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from provisioner.report.style import PLAIN, Style, aligned, safe_line
from provisioner.wheels.known import COLUMNS, Stack
from provisioner.wheels.locking import Locked
from provisioner.wheels.rule import Fit, Judgement, Verdict, worst

MARKS = {Fit.FITS: ("ok", "green"), Fit.UNFIT: ("bad", "red"), Fit.UNKNOWN: ("?", "yellow")}
ABSENT = "-"
TABLE = (*COLUMNS, "vllm")
"""The packages that have a column in the table of stacks."""
SHORT = {"causal-conv1d": "conv1d", "flash-linear-attention": "fla"}
"""How long names stand above the table's columns."""


def table_text(stacks: Sequence[Stack], judged: Mapping[str, Sequence[Judgement]], style: Style = PLAIN) -> str:
    """The stacks as a table of marks, then each with its packages, a verdict and its reason a line."""
    head = ["stack", "python", *(SHORT.get(column, column) for column in TABLE), "verdict"]
    lines = aligned([head, *(_row(stack, judged[stack.id]) for stack in stacks)])
    details = [stack_text(stack, judged[stack.id], style) for stack in stacks]
    return "\n".join([style.paint(lines[0], "bold"), *lines[1:], "", "\n\n".join(details)])


def stack_text(stack: Stack, judgements: Sequence[Judgement], style: Style = PLAIN) -> str:
    """One stack: its title and verdict, a line for each package and each that it goes without, and what is odd."""
    needs = f"CUDA {stack.cuda}, driver {stack.driver} or newer" if stack.cuda else "needs no card"
    lines = [style.paint(f"{stack.id}: {stack.title} (Python {_span(stack.python)}, {needs})", "bold")]
    for verdict in _worst_of_each(judgements):
        lines += _verdict_lines(verdict, style)
    lines += [f"  {ABSENT:<4} {name}: {safe_line(reason)}" for name, reason in stack.missing.items()]
    files = len(stack.unverified)
    if files:
        lines.append(f"  {files} of its files have no known hash: they need --accept-unverified")
    notes = stack.notes.strip().splitlines()
    return "\n".join([*lines, *(f"  {line}" for line in notes)])


def judgement_text(title: str, judgement: Judgement, style: Style = PLAIN) -> str:
    """What was found of one set on one Python: the verdict, then a line for each package."""
    mark, color = MARKS[judgement.fit]
    where = f" on Python {judgement.python}" if judgement.python else ""
    lines = [f"{style.paint(mark, color)} {safe_line(title)}{where}: {judgement.fit}"]
    for verdict in judgement.verdicts:
        lines += _verdict_lines(verdict, style)
    return "\n".join(lines)


def judgement_content(title: str, judgement: Judgement) -> dict[str, Any]:
    """What was found of one set, for machine-readable output."""
    return {"set": title, "python": judgement.python, "fit": judgement.fit, "packages": judgement.verdicts}


def stack_content(stack: Stack, judgements: Sequence[Judgement]) -> dict[str, Any]:
    """A stack and what was found of it, for machine-readable output."""
    judged = [judgement_content(stack.id, judgement) for judgement in judgements]
    return {**stack.model_dump(mode="json"), "fit": worst(judgements), "judged": judged}


def lock_text(stack: str, wheels: Sequence[Locked]) -> str:
    """The variables of role ``torch_stack``, as YAML."""
    lines = ["---", '# Written by "provision stacks lock".', f"torch_stack_name: {stack}", "torch_stack_packages:"]
    for wheel in wheels:
        mark = "-"
        for name, value in asdict(wheel).items():
            lines.append(f"  {mark} {name}: {json.dumps(value)}")
            mark = " "
    return "\n".join([*lines, ""])


def _row(stack: Stack, judgements: Sequence[Judgement]) -> list[str]:
    verdicts = {verdict.package: verdict for verdict in _worst_of_each(judgements)}
    cells = [MARKS[verdicts[column].fit][0] if column in verdicts else ABSENT for column in TABLE]
    return [stack.id, _span(stack.python), *cells, str(worst(judgements))]


def _worst_of_each(judgements: Sequence[Judgement]) -> list[Verdict]:
    """A verdict for each package: the worst that it got on any Python."""
    order = [Fit.FITS, Fit.UNKNOWN, Fit.UNFIT]
    verdicts: dict[str, Verdict] = {}
    for judgement in judgements:
        for verdict in judgement.verdicts:
            known = verdicts.setdefault(verdict.package, verdict)
            if order.index(verdict.fit) > order.index(known.fit):
                verdicts[verdict.package] = verdict
    return list(verdicts.values())


def _verdict_lines(verdict: Verdict, style: Style) -> list[str]:
    mark, color = MARKS[verdict.fit]
    name = f"{verdict.package} {verdict.version}".rstrip()
    lines = [f"  {style.paint(f'{mark:<4}', color)} {safe_line(name)}: {safe_line(verdict.reason)}"]
    if verdict.advice:
        lines.append(f"       {safe_line(verdict.advice)}")
    return lines


def _span(pythons: Sequence[str]) -> str:
    return pythons[0] if len(pythons) == 1 else f"{pythons[0]}-{pythons[-1]}"
