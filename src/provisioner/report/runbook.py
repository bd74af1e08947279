"""A runbook as a page for people and for machine-readable output, and all of them as a table."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from provisioner.catalog.runbooks import Runbook
from provisioner.report.style import PLAIN, Style, indent, table

WIDTH = 96
CHANGES = {True: "changes", False: "looks"}


def table_text(runbooks: Sequence[Runbook], style: Style = PLAIN) -> str:
    """One line for each: its id, what it is for, and whether it changes anything."""
    rows = [(runbook.id, runbook.title, _kind(runbook)) for runbook in runbooks]
    return table(("runbook", "for", "kind"), rows, style) + "\n\nOne of them as a page: provision runbook show ID"


def page_text(runbook: Runbook, style: Style = PLAIN) -> str:
    """The whole page: symptom, danger, what is proved before, the steps, the way back, and what is checked after."""
    preconditions = [_hanging("- ", precondition) for precondition in runbook.preconditions]
    parts = {
        "Symptom": _wrapped(runbook.symptom),
        "Danger": _wrapped(runbook.danger),
        "Conditions": _wrapped(", ".join(runbook.conditions)),
        "Proved before anything is changed": "\n".join(preconditions),
        "Steps": _steps_text(runbook),
        "Undo": _wrapped(runbook.undo),
        "Checked afterwards": _wrapped(runbook.after),
        "Playbook": _wrapped(runbook.reason) if runbook.playbook == "none" else f"repair/{runbook.id}.yml",
    }
    paragraphs = [style.paint(f"{runbook.id}: {runbook.title}", "bold")]
    for title, text in parts.items():
        if text:
            paragraphs.append(f"{style.paint(title, 'bold')}\n{indent(text)}")
    return "\n\n".join(paragraphs)


def _steps_text(runbook: Runbook) -> str:
    lines = []
    for number, step in enumerate(runbook.steps, 1):
        lines.append(_hanging(f"{number}. ", f"{step.id} ({CHANGES[step.changes]}): {step.does}"))
    return "\n".join(lines)


def content(runbook: Runbook) -> dict[str, Any]:
    """The whole page for machine-readable output."""
    return runbook.model_dump(mode="json")


def _kind(runbook: Runbook) -> str:
    return CHANGES[any(step.changes for step in runbook.steps)]


def _wrapped(text: str) -> str:
    """Paragraphs stay; commands stand on lines of their own, indented in the page, and are not wrapped."""
    return "\n".join(map(_wrapped_line, text.strip().splitlines()))


def _wrapped_line(line: str) -> str:
    if line.startswith(" "):
        return line
    return textwrap.fill(line, WIDTH, break_on_hyphens=False)


def _hanging(mark: str, text: str) -> str:
    joined = " ".join(text.split())
    return textwrap.fill(joined, WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark), break_on_hyphens=False)
