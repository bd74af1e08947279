"""The runbooks that exist: ``data/runbooks/<id>.yml``, each the page of a repair, for people, reports and programs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError, model_validator

from provisioner.report.style import PLAIN, Style, indent, table
from provisioner.values import paths
from provisioner.values.errors import InputError, ProvisionError

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Id = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
KEYS = "title symptom danger conditions preconditions steps undo after (playbook reason)"
WIDTH = 96
CHANGES = {True: "changes", False: "looks"}


class _Page(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Step(_Page):
    """One step: its id is what the names of its tasks begin with; ``changes``: whether it changes anything."""

    id: Id
    does: Text
    changes: bool


class Runbook(_Page):
    """A repair as a page.

    ``conditions``: values of ``cluster.facts.Condition`` that it mends. ``playbook``: ``own`` when
    ``playbooks/repair/<id>.yml`` does the steps, ``none`` with the ``reason`` why there is none.
    """

    id: Id
    title: Text
    symptom: Text
    danger: Text
    conditions: tuple[Id, ...] = ()
    preconditions: tuple[Text, ...]
    steps: tuple[Step, ...]
    undo: Text
    after: Text
    playbook: Literal["own", "none"] = "own"
    reason: str = ""

    @property
    def file(self) -> Path | None:
        """Its playbook, or None."""
        return paths.playbooks() / "repair" / f"{self.id}.yml" if self.playbook == "own" else None

    @model_validator(mode="after")
    def _is_whole(self) -> Runbook:
        ids = [step.id for step in self.steps]
        if not ids:
            raise ValueError("it has no steps")
        if twice := sorted({step_id for step_id in ids if ids.count(step_id) > 1}):
            raise ValueError(f"steps has {', '.join(twice)} twice")
        if (self.playbook == "none") != bool(self.reason.strip()):
            raise ValueError("reason says why there is no playbook: it is there with playbook: none, and only then")
        if self.playbook == "none" and any(step.changes for step in self.steps):
            raise ValueError("a step changes something, and there is no playbook that does it")
        return self


def known_runbooks(folder: Path | None = None) -> dict[str, Runbook]:
    """All runbooks by their ids, in the order of the ids; ``ProvisionError`` names the page that is wrong."""
    return dict(_known(folder or paths.data() / "runbooks"))


def known_runbook(name: str) -> Runbook:
    """The runbook of that id; ``InputError`` lists those that there are."""
    known = known_runbooks()
    if name not in known:
        raise InputError(
            f"Unable to find runbook {name}",
            details=f"There are: {', '.join(known)}",
            resolution="See: provision runbook list",
        )
    return known[name]


@cache
def _known(folder: Path) -> dict[str, Runbook]:
    return {page.stem: _runbook(page) for page in sorted(folder.glob("*.yml"))}


def _runbook(page: Path) -> Runbook:
    """The page in that file; ``ProvisionError`` says what is wrong with it."""
    import yaml

    try:
        content = yaml.safe_load(page.read_text(encoding="utf-8"))
        return Runbook.model_validate({**content, "id": page.stem})
    except (OSError, yaml.YAMLError, TypeError, ValidationError) as error:
        raise ProvisionError(
            f"Unable to read the page of runbook {page.stem}", details=_words(error), resolution=f"Correct {page}"
        ) from error


def _words(error: Exception) -> str:
    """One line for each thing that is wrong, the place first."""
    if isinstance(error, TypeError):
        return f"It is no page with {KEYS}."
    if not isinstance(error, ValidationError):
        return str(error)
    found = ((".".join(str(part) for part in wrong["loc"]), wrong["msg"]) for wrong in error.errors())
    return "\n".join(f"{place or 'page'}: {said.removeprefix('Value error, ')}" for place, said in found)


def runbooks_text(runbooks: Sequence[Runbook], style: Style = PLAIN) -> str:
    """One line for each: its id, what it is for, and whether it changes anything."""
    rows = list[tuple[str, str, str]]()
    for runbook in runbooks:
        kind = CHANGES[any(step.changes for step in runbook.steps)]
        rows.append((runbook.id, runbook.title, kind))
    return table(("runbook", "for", "kind"), rows, style) + "\n\nOne of them as a page: provision runbook show ID"


def runbook_text(runbook: Runbook, style: Style = PLAIN) -> str:
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
    """The steps with their numbers, and whether each changes anything."""
    lines = []
    for number, step in enumerate(runbook.steps, 1):
        lines.append(_hanging(f"{number}. ", f"{step.id} ({CHANGES[step.changes]}): {step.does}"))
    return "\n".join(lines)


def runbook_content(runbook: Runbook) -> dict[str, Any]:
    """The whole page for machine-readable output."""
    return runbook.model_dump(mode="json")


def _wrapped(text: str) -> str:
    """Paragraphs stay; commands stand on lines of their own, indented in the page, and are not wrapped."""
    lines = list[str]()
    for line in text.strip().splitlines():
        is_command = line.startswith(" ")
        lines.append(line if is_command else textwrap.fill(line, WIDTH, break_on_hyphens=False))
    return "\n".join(lines)


def _hanging(mark: str, text: str) -> str:
    joined = " ".join(text.split())
    return textwrap.fill(joined, WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark), break_on_hyphens=False)
