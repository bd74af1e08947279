"""When each part of the tests last ran, at which commit, how long it took and how it ended.

A part is a folder of ``tests/unit``, a file of ``tests/integration``, a Molecule scenario or the linters. What
``make test-all`` found stands in ``tests/last_full.yml`` of the checkout, what other runs found in the machine's cache.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from provisioner.values import paths

LAST_FULL = "tests/last_full.yml"
HEADER = "# Written by `make test-all`: what ran at which commit, when, how long, and what failed.\n"
OLD = timedelta(days=14)
OLD_COMMITS = 60
"""A part that ran neither in that time nor within so many commits comes before others."""


@dataclass(frozen=True)
class Run:
    """The last run of a part."""

    commit: str
    at: str
    """The time of its end, ISO 8601 in UTC."""
    seconds: float
    """Wall time of its tests."""
    failed: tuple[str, ...] = ()
    """The tests that failed."""
    unsteady: bool = False
    """Whether the part has both failed and passed at this commit."""

    def is_old(self, now: datetime, commits_since: Mapping[str, int]) -> bool:
        """Return whether the run is too long ago, in time and in commits, to still say something."""
        is_long_ago = now - datetime.fromisoformat(self.at) > OLD
        return is_long_ago and commits_since.get(self.commit, OLD_COMMITS) >= OLD_COMMITS


def now() -> str:
    """Return the time as records have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def cache_file() -> Path:
    """Return the file of this machine's records."""
    return paths.cache() / "tests.json"


def read_runs(file: Path) -> dict[str, Run]:
    """Return the run of each part that a file of records names; nothing where there is none, or it is damaged."""
    try:
        return {part: _run(row) for part, row in _read(file).get("parts", {}).items()}
    except (KeyError, TypeError, ValueError):
        return {}


def latest_runs(root: Path) -> dict[str, Run]:
    """Return the newest known run of each part, of the checkout's records and this machine's."""
    known = read_runs(root / LAST_FULL)
    for part, run in read_runs(cache_file()).items():
        if part not in known or known[part].at < run.at:
            known[part] = run
    return known


def write_runs(file: Path, runs: Mapping[str, Run], commit: str) -> None:
    """Add runs to a file of records, beside those of other parts; raises ``OSError``."""
    rows = {part: asdict(run) | {"failed": list(run.failed)} for part, run in {**read_runs(file), **runs}.items()}
    content = {"commit": commit, "date": now(), "parts": dict(sorted(rows.items()))}
    if file.suffix == ".json":
        text = json.dumps(content)
    else:
        text = HEADER + yaml.safe_dump(content, sort_keys=False, width=120)
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False, encoding="utf-8") as written:
        written.write(text)
    Path(written.name).chmod(0o644)
    Path(written.name).replace(file)


def _read(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        return content if isinstance(content, dict) and isinstance(content.get("parts"), dict) else {}
    except (FileNotFoundError, yaml.YAMLError):
        return {}


def _run(row: Mapping[str, Any]) -> Run:
    failed = tuple(str(name) for name in row["failed"])
    return Run(str(row["commit"]), str(row["at"]), float(row["seconds"]), failed, bool(row["unsteady"]))
