"""A plan as Markdown, for a comment on a merge request: what would happen and be lost, all attributes folded away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from provisioner.report.plan import NO_CHANGES, OUTCOMES, change_text, count_line, thing_of
from provisioner.report.style import safe_line
from provisioner.values.plain_data import Foreign
from provisioner.values.plan import Action, Change, Plan

LOSING: tuple[Action, ...] = ("replace", "delete")
_MARKS = {"+": "+", "-": "-", "~": "!", "-/+": "!"}
"""How a block of the language ``diff`` colours a line, by the sign in the plan's own text."""
LONGEST = 60_000
"""Characters: GitHub takes 65,536 in a comment, GitLab a million."""
_OF_TABLE = 40_000
_OF_NAMES = 5000
"""Characters of these at most, so that none of them takes all of the comment."""


def plan_markdown(plan: Plan, lab: str) -> str:
    """Return the plan as Markdown; every value in it is code, so that none can be markup, a link or a call."""
    head = [f"### Plan of {_code(lab)}", NO_CHANGES if plan.is_empty else count_line(plan)]
    lost = [change.target for change in plan.changes if change.action in LOSING]
    if lost:
        head.append(f"> **What is in it is lost:** {_names(lost)}")
    if plan.changes:
        head.append(_table(plan.changes))
    if plan.orphans:
        names = (instance.name for instance in plan.orphans)
        head.append(f"Of this lab, not in the file, and kept: {_names(names)}")
    if plan.leftovers:
        head.append(f"No longer in the file, and still running: {_names(plan.leftovers)}")
    text = "\n\n".join(head)
    if not plan.changes:
        return text
    return f"{text}\n\n{_details(plan.changes, LONGEST - len(text))}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(_fitting(list(map(_code, names)), _OF_NAMES, "and {} more: run provision plan"))


def _table(changes: Iterable[Change]) -> str:
    rows = []
    for change in changes:
        cells = (
            f"{thing_of(change)} {_code(change.target)}",
            OUTCOMES[change.action],
            _code(change.reason),
            _code(change.meanwhile),
        )
        rows.append(f"| {' | '.join(cells)} |")
    shown = _fitting(rows, _OF_TABLE, "| and {} more: run provision plan |")
    return "\n".join(["| what | happens | why | meanwhile |", "|---|---|---|---|", *shown])


def _details(changes: Iterable[Change], room: int) -> str:
    lines = [line.replace("`", "'") for change in changes for line in _diff_lines(change)]
    text = "\n".join(_fitting(lines, room, "  and {} lines more: run provision plan"))
    return f"<details><summary>Every attribute</summary>\n\n```diff\n{text}\n```\n\n</details>"


def _fitting(lines: Sequence[str], room: int, more: str) -> list[str]:
    """Return the first lines that fit into ``room`` characters, and ``more`` with the number of the others."""
    fitting: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            return [*fitting, more.format(len(lines) - len(fitting))]
        fitting.append(line)
    return fitting


def _diff_lines(change: Change) -> Iterator[str]:
    """The plan's own lines, each with the mark at its beginning by which it gets its colour."""
    for line in change_text(change).splitlines():
        sign, blank, rest = line.strip().partition(" ")
        indentation = line[: len(line) - len(line.lstrip())]
        if blank and sign in _MARKS:
            yield f"{_MARKS[sign]} {indentation}{rest}"
        else:
            yield f"  {line}"


def _code(value: object) -> str:
    """Return ``value`` as a span of code, whatever is in it; nothing for nothing.

    A pipe ends the cell of a table also in code. Nothing can stand for a backtick in code, and a fence longer than any
    run of them is none from 80 on.
    """
    text = Foreign(safe_line(value)).replace("|", "\\|").replace("`", "'")
    return f"`{text}`" if text else ""
