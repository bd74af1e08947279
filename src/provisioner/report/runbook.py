"""A runbook as a page for people, and all of them as a table; the same for programs."""

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
    rows = [(one.id, one.title, _kind(one)) for one in runbooks]
    return table(("runbook", "for", "kind"), rows, style) + "\n\nOne of them as a page: provision runbook show ID"


def page_text(runbook: Runbook, style: Style = PLAIN) -> str:
    """The whole page: symptom, danger, what is proved before, the steps, the way back, and what is checked after."""
    steps = [f"{one.id} ({CHANGES[one.changes]}): {one.does}" for one in runbook.steps]
    numbered = [_hanging(f"{number}. ", step) for number, step in enumerate(steps, 1)]
    parts = [
        ("Symptom", _wrapped(runbook.symptom)),
        ("Danger", _wrapped(runbook.danger)),
        ("Conditions", _wrapped(", ".join(runbook.conditions))),
        ("Proved before anything is changed", "\n".join(_hanging("- ", one) for one in runbook.preconditions)),
        ("Steps", "\n".join(numbered)),
        ("Undo", _wrapped(runbook.undo)),
        ("Checked afterwards", _wrapped(runbook.after)),
        ("Playbook", _wrapped(runbook.reason) if runbook.playbook == "none" else f"repair/{runbook.id}.yml"),
    ]
    head = style.paint(f"{runbook.id}: {runbook.title}", "bold")
    told = [f"{style.paint(title, 'bold')}\n{indent(text)}" for title, text in parts if text]
    return "\n\n".join([head, *told])


def content(runbook: Runbook) -> dict[str, Any]:
    """The same for programs."""
    return runbook.model_dump(mode="json")


def _kind(runbook: Runbook) -> str:
    return CHANGES[any(one.changes for one in runbook.steps)]


def _wrapped(text: str) -> str:
    """Paragraphs stay; commands stand on lines of their own, indented in the page, and are not wrapped."""
    lines = text.strip().splitlines()
    return "\n".join(
        line if line.startswith(" ") else textwrap.fill(line, WIDTH, break_on_hyphens=False) for line in lines
    )


def _hanging(mark: str, text: str) -> str:
    joined = " ".join(text.split())
    return textwrap.fill(joined, WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark), break_on_hyphens=False)
