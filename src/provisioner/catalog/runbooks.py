"""The runbooks that exist: ``data/runbooks/<id>.yml``, each the page of a repair, for people, reports and programs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError, model_validator

from provisioner.values import paths
from provisioner.values.errors import InputError, ProvisionError

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Id = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
KEYS = "title symptom danger conditions preconditions steps undo after (playbook reason)"


class _Page(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Step(_Page):
    """One step: its id is what the names of its tasks begin with; ``changes``: whether it changes anything."""

    id: Id
    does: Text
    changes: bool


class Runbook(_Page):
    """A repair as a page.

    ``conditions``: values of ``repair.conditions.Condition`` that it mends. ``playbook``: ``own`` when
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
        ids = [one.id for one in self.steps]
        if not ids:
            raise ValueError("it has no steps")
        if twice := sorted({one for one in ids if ids.count(one) > 1}):
            raise ValueError(f"steps has {', '.join(twice)} twice")
        if (self.playbook == "none") != bool(self.reason.strip()):
            raise ValueError("reason says why there is no playbook: it is there with playbook: none, and only then")
        if self.playbook == "none" and any(one.changes for one in self.steps):
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
    found = ((".".join(str(part) for part in one["loc"]), one["msg"]) for one in error.errors())
    return "\n".join(f"{place or 'page'}: {said.removeprefix('Value error, ')}" for place, said in found)
