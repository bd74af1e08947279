"""A plan as Markdown, for a comment on a merge request: what would happen and be lost, all attributes folded away."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from provisioner.plan import Action, Change, Plan
from provisioner.report.plan import NO_CHANGES, OUTCOMES, change_text, count_line, thing_of
from provisioner.report.style import safe_line

LOSING: tuple[Action, ...] = ("replace", "delete")
_SPEAKING = re.compile(r"[`*_\[\]<>#@|~&!\\$:{}]")
"""What means something in Markdown, or has the host of the repository call people, issues and addresses."""
_MARKS = {"+": "+", "-": "-", "~": "!", "-/+": "!"}
"""How a block of the language ``diff`` colours a line, by the sign in the plan's own text."""
LONGEST = 60_000
"""Characters: GitHub takes 65,536 in a comment, GitLab a million."""


def plan_markdown(plan: Plan, lab: str) -> str:
    """The plan as Markdown. Nothing that others chose, names and reasons, can be more than text in it."""
    head = [f"### Plan of {_code(lab)}", NO_CHANGES if plan.is_empty else count_line(plan)]
    lost = [_code(change.target) for change in plan.changes if change.action in LOSING]
    if lost:
        head.append(f"> **What is in it is lost:** {', '.join(lost)}")
    if plan.changes:
        head.append(_table(plan.changes))
    if plan.orphans:
        names = (_code(instance.name) for instance in plan.orphans)
        head.append(f"Of this lab, not in the file, and kept: {', '.join(names)}")
    if plan.leftovers:
        head.append(f"No longer in the file, and still running: {', '.join(map(_code, plan.leftovers))}")
    text = "\n\n".join(head)
    if not plan.changes:
        return text
    return f"{text}\n\n{_details(plan.changes, LONGEST - len(text))}"


def _table(changes: Iterable[Change]) -> str:
    rows = ["| what | happens | why | meanwhile |", "|---|---|---|---|"]
    for change in changes:
        cells = (
            f"{thing_of(change)} {_code(change.target)}",
            _text(OUTCOMES[change.action]),
            _text(change.reason),
            _text(change.meanwhile),
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _details(changes: Iterable[Change], room: int) -> str:
    lines = [line for change in changes for line in _diff_lines(change)]
    kept: list[str] = []
    for number, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            kept.append(f"  and {len(lines) - number} lines more: run provision plan")
            break
        kept.append(line)
    text = "\n".join(kept)
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"<details><summary>Every attribute</summary>\n\n{fence}diff\n{text}\n{fence}\n\n</details>"


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
    """``value`` as a span of code, whatever is in it."""
    text = safe_line(value).replace("|", "\\|")  # which tables take for the end of a cell, also in code
    fence = "`" * (_longest_run(text) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def _text(value: object) -> str:
    """``value`` as words that mean nothing but themselves."""
    return _SPEAKING.sub(lambda found: f"&#{ord(found[0])};", safe_line(value))


def _longest_run(text: str) -> int:
    """The longest run of backticks."""
    return max((len(run) for run in re.findall("`+", text)), default=0)
