"""The record of a repair, step by step, as one value; and the folder on the controller in which it is stored."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from provisioner.cluster.facts import Condition, Diagnosis
from provisioner.values import paths
from provisioner.values.errors import ProvisionError
from provisioner.values.plain_data import json_value
from provisioner.values.regular_files import text_of

RECORD = "record.json"
BACKUP = "backup"
REMOTE_FOLDER = "/var/lib/provisioner/repair"
"""Where a node keeps its own copy, in a folder of the run's name."""


class StepStatus(StrEnum):
    """The ends of a step."""

    DONE = "done"
    UNCHANGED = "nothing to do"
    LEFT_OUT = "left out"
    """What the repair found or was told did not ask for it."""
    FAILED = "failed"
    NOT_REACHED = "not reached"
    BEGUN = "begun"
    """It was at this step when it was killed: what of it was done is not known."""


@dataclass(frozen=True, slots=True)
class CommandRecord:
    """One command on ``host``: what was run, its exit code (None: not known), and what it wrote; no secret is in it."""

    host: str
    argv: tuple[str, ...]
    code: int | None
    output: str = ""
    elapsed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of a runbook, by its id there."""

    id: str
    does: str
    status: StepStatus
    commands: tuple[CommandRecord, ...] = ()
    message: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """One run of a runbook on ``node`` of ``cluster``; times are ISO 8601 in UTC.

    ``before`` and ``after``: what the check said. ``backup``: the folder on this machine, empty where none was needed.
    ``error``: why it did not come to its end; empty when it did. ``begun``: the ids of the steps that were ever begun,
    in this attempt or in one before it that was killed or failed. ``plan``: what was proved and decided before it.
    """

    runbook: str
    cluster: str
    node: str
    lead: str
    began: str
    ended: str = ""
    before: tuple[Diagnosis, ...] = ()
    after: tuple[Diagnosis, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    backup: str = ""
    error: str = ""
    begun: tuple[str, ...] = ()
    plan: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_unfinished(self) -> bool:
        """True when it was killed, or failed: what it left may be neither the old state nor the new one."""
        return not self.ended or bool(self.error)

    def has_begun(self, *steps: str) -> bool:
        """Return whether one of the steps with these ids may have changed something, now or in an attempt before."""
        return not set(steps).isdisjoint(self.begun)


def record_json(record: Record) -> str:
    """The whole record, readable, with a newline at its end."""
    return json.dumps(asdict(record), indent=2) + "\n"


def record_of(text: str) -> Record:
    """The record that ``record_json`` wrote; ``ValueError`` when it is none."""
    try:
        content = json_value(text)
        before = tuple(map(_diagnosis, content.pop("before")))
        after = tuple(map(_diagnosis, content.pop("after")))
        steps = tuple(map(_step, content.pop("steps")))
        begun = tuple(content.pop("begun", ()))
        return Record(**content, before=before, after=after, steps=steps, begun=begun)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not the record of a repair: {error!r}") from error


def _diagnosis(content: Mapping[str, Any]) -> Diagnosis:
    return Diagnosis(
        **{**content, "condition": Condition(content["condition"]), "evidence": tuple(content["evidence"])}
    )


def _step(content: Mapping[str, Any]) -> StepRecord:
    commands = tuple(map(_command, content["commands"]))
    return StepRecord(**{**content, "status": StepStatus(content["status"]), "commands": commands})


def _command(content: Mapping[str, Any]) -> CommandRecord:
    return CommandRecord(**{**content, "argv": tuple(content["argv"])})


@dataclass(frozen=True, slots=True)
class Run:
    """One run on disk: its folder, and what its record said when it was read."""

    folder: Path
    record: Record

    @property
    def name(self) -> str:
        """By which people call it, and the folder on the node is called."""
        return self.folder.name

    @property
    def remote(self) -> str:
        """The folder on the node."""
        return f"{REMOTE_FOLDER}/{self.name}"

    @property
    def backup(self) -> Path:
        """The folder of what was saved; it is there once all of it is."""
        return self.folder / BACKUP


def create_run(record: Record) -> Run:
    """A new run: its folder (0700) and its record."""
    began = datetime.fromisoformat(record.began).astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    name = "-".join((began, _path_part(record.runbook), _path_part(record.node)))
    cluster = clusters_folder() / _path_part(record.cluster)
    cluster.mkdir(mode=0o700, parents=True, exist_ok=True)
    number = 1
    while True:  # two runs may begin in one second
        folder = cluster / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            number += 1
            continue
        return write_record(Run(folder, record), record)


def write_record(run: Run, record: Record) -> Run:
    """Keep ``record`` (0600) in the run's folder: whole, or as it was before; it is on disk when this returns."""
    target, part = run.folder / RECORD, run.folder / f"{RECORD}.part"
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(record_json(record))
        file.flush()
        os.fsync(file.fileno())
    part.replace(target)
    return replace(run, record=record)


def all_runs(cluster: str = "") -> tuple[Run, ...]:
    """All runs (of one cluster), the oldest first; a folder without a record is none."""
    found = list[Run]()
    for file in clusters_folder().glob(f"{_path_part(cluster) if cluster else '*'}/*/{RECORD}"):
        try:
            found.append(Run(file.parent, record_of(text_of(file))))
        except (OSError, ValueError) as error:
            raise ProvisionError(
                f"Unable to read what a repair left in {file.parent}",
                details=str(error),
                resolution=f"Look at its folder, and move it elsewhere: {file.parent}",
            ) from error
    return tuple(sorted(found, key=lambda run: run.name))


def unfinished_run(cluster: str, node: str) -> Run | None:
    """The newest run on that node of the cluster, if it did not come to its end."""
    newest = None
    for run in all_runs(cluster):
        if run.record.node == node:
            newest = run
    if newest is None or not newest.record.is_unfinished:
        return None
    return newest


def clusters_folder() -> Path:
    """The folder of all clusters."""
    return paths.state("clusters")


def now() -> str:
    """This moment as records have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _path_part(name: str) -> str:
    """``name`` as a part of a path: it came from a node, and a node may say what it likes."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", name):
        raise ProvisionError(f"Unable to keep anything under the name {name!r}", details="It is no name of a node.")
    return name
