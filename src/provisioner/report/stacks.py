"""Stacks of wheels and what was found of them: a table, and a line with its reason for each package; text and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from provisioner.report.style import PLAIN, Style, safe_line
from provisioner.stacks.known import COLUMNS, Stack
from provisioner.stacks.locking import Locked
from provisioner.stacks.objections import Fit
from provisioner.stacks.rule import Judgement, Verdict, worst

MARKS = {Fit.FITS: ("ok", "green"), Fit.UNFIT: ("bad", "red"), Fit.UNKNOWN: ("?", "yellow")}
ABSENT = "-"
SHORT = {"causal-conv1d": "conv1d", "flash-linear-attention": "fla"}
"""How long names stand above the table's columns."""


def table_text(stacks: Sequence[Stack], judged: Mapping[str, Sequence[Judgement]], style: Style = PLAIN) -> str:
    """The stacks as a table of marks, then each with its packages, a verdict and its reason a line."""
    head = ["stack", "python", *(SHORT.get(one, one) for one in COLUMNS), "verdict"]
    rows = [head, *(_row(one, judged[one.id]) for one in stacks)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    details = (stack_text(one, judged[one.id], style) for one in stacks)
    return "\n".join([style.paint(lines[0], "bold"), *lines[1:], "", "\n\n".join(details)])


def stack_text(stack: Stack, judgements: Sequence[Judgement], style: Style = PLAIN) -> str:
    """One stack: its title and verdict, a line for each package and each that it goes without, and what is odd."""
    head = (
        f"{stack.id}: {stack.title} (Python {_span(stack.python)}, CUDA {stack.cuda}, driver {stack.driver} or newer)"
    )
    lines = [style.paint(head, "bold")]
    lines += [line for verdict in _worst_of_each(judgements) for line in _verdict_lines(verdict, style)]
    lines += [f"  {ABSENT:<4} {name}: {safe_line(reason)}" for name, reason in stack.missing.items()]
    files = len(stack.unverified)
    lines += [f"  {files} of its files have no known hash: they need --accept-unverified"] if files else []
    return "\n".join([*lines, *(f"  {line}" for line in stack.notes.strip().splitlines())])


def judgement_text(title: str, judgement: Judgement, style: Style = PLAIN) -> str:
    """What was found of one set on one Python: the verdict, then a line for each package."""
    mark, color = MARKS[judgement.fit]
    where = f" on Python {judgement.python}" if judgement.python else ""
    lines = [f"{style.paint(mark, color)} {safe_line(title)}{where}: {judgement.fit}"]
    return "\n".join([*lines, *(line for one in judgement.verdicts for line in _verdict_lines(one, style))])


def judgement_content(title: str, judgement: Judgement) -> dict[str, Any]:
    """The same for programs."""
    return {"set": title, "python": judgement.python, "fit": judgement.fit, "packages": judgement.verdicts}


def stack_content(stack: Stack, judgements: Sequence[Judgement]) -> dict[str, Any]:
    """A stack and what was found of it, for programs."""
    found = [judgement_content(stack.id, one) for one in judgements]
    return {**stack.model_dump(mode="json"), "fit": worst(judgements), "judged": found}


def lock_text(stack: str, wheels: Sequence[Locked]) -> str:
    """The variables of role ``torch_stack``, as YAML."""
    lines = ["---", '# Written by "provision stacks lock".', f"torch_stack_name: {stack}", "torch_stack_packages:"]
    for one in wheels:
        words = (f"{name}: {json.dumps(value)}" for name, value in asdict(one).items())
        lines += [f"  {mark} {word}" for mark, word in zip("-   ", words, strict=True)]
    return "\n".join([*lines, ""])


def _row(stack: Stack, judgements: Sequence[Judgement]) -> list[str]:
    found = {one.package: one for one in _worst_of_each(judgements)}
    cells = [MARKS[found[one].fit][0] if one in found else ABSENT for one in COLUMNS]
    return [stack.id, _span(stack.python), *cells, str(worst(judgements))]


def _worst_of_each(judgements: Sequence[Judgement]) -> list[Verdict]:
    """A verdict for each package: the worst that it got on any Python."""
    order = [Fit.FITS, Fit.UNKNOWN, Fit.UNFIT]
    found: dict[str, Verdict] = {}
    for verdict in (verdict for one in judgements for verdict in one.verdicts):
        known = found.get(verdict.package)
        if known is None or order.index(verdict.fit) > order.index(known.fit):
            found[verdict.package] = verdict
    return list(found.values())


def _verdict_lines(verdict: Verdict, style: Style) -> list[str]:
    mark, color = MARKS[verdict.fit]
    name = f"{verdict.package} {verdict.version}".rstrip()
    lines = [f"  {style.paint(f'{mark:<4}', color)} {safe_line(name)}: {safe_line(verdict.reason)}"]
    return [*lines, f"       {safe_line(verdict.advice)}"] if verdict.advice else lines


def _span(pythons: Sequence[str]) -> str:
    return pythons[0] if len(pythons) == 1 else f"{pythons[0]}-{pythons[-1]}"
