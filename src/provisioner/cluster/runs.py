"""The folders in which repairs are kept on the controller: ``<state>/clusters/<cluster>/<time>-<runbook>-<node>/``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from provisioner.repair.record import Record
from provisioner.repair.record_json import record_json, record_of
from provisioner.values import paths
from provisioner.values.errors import ProvisionError
from provisioner.values.regular_files import text_of

RECORD = "record.json"
BACKUP = "backup"
REMOTE = "/var/lib/provisioner/repair"
"""Where a node keeps its own copy, in a folder of the run's name."""


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
        return f"{REMOTE}/{self.name}"

    @property
    def backup(self) -> Path:
        """The folder of what was saved; it is there once all of it is."""
        return self.folder / BACKUP


def begin(record: Record) -> Run:
    """A new run: its folder (0700) and its record."""
    name = "-".join((_stamp(record.began), _part(record.runbook), _part(record.node)))
    cluster = clusters() / _part(record.cluster)
    cluster.mkdir(mode=0o700, parents=True, exist_ok=True)
    number = 1
    while True:  # two runs may begin in one second
        folder = cluster / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            number += 1
            continue
        return write(Run(folder, record), record)


def write(run: Run, record: Record) -> Run:
    """Keep ``record`` (0600) in the run's folder: whole, or as it was before; it is on disk when this returns."""
    target, part = run.folder / RECORD, run.folder / f"{RECORD}.part"
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(record_json(record))
        file.flush()
        os.fsync(file.fileno())
    part.replace(target)
    return replace(run, record=record)


def runs(cluster: str = "") -> tuple[Run, ...]:
    """All runs (of one cluster), the oldest first; a folder without a record is none."""
    return tuple(sorted(_runs(cluster), key=lambda run: run.name))


def unfinished(cluster: str, node: str) -> Run | None:
    """The newest run on that node of the cluster, if it did not come to its end."""
    newest = None
    for run in runs(cluster):
        if run.record.node == node:
            newest = run
    if newest is None or not newest.record.is_unfinished:
        return None
    return newest


def clusters() -> Path:
    """The folder of all clusters."""
    return paths.state("clusters")


def now() -> str:
    """This moment as records have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _runs(cluster: str) -> Iterator[Run]:
    for file in clusters().glob(f"{_part(cluster) if cluster else '*'}/*/{RECORD}"):
        try:
            yield Run(file.parent, record_of(text_of(file)))
        except (OSError, ValueError) as error:
            raise ProvisionError(
                f"Unable to read what a repair left in {file.parent}",
                details=str(error),
                resolution=f"Look at its folder, and move it elsewhere: {file.parent}",
            ) from error


def _part(name: str) -> str:
    """``name`` as a part of a path: it came from a node, and a node may say what it likes."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", name):
        raise ProvisionError(f"Unable to keep anything under the name {name!r}", details="It is no name of a node.")
    return name


def _stamp(moment: str) -> str:
    return datetime.fromisoformat(moment).astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
