"""A round of ``make test-all``: everything once, perhaps in several runs, shards and days.

It begins with the first run after a round that is over, and is over when each part has passed on its present inputs, or
after a week. A run of it leaves out what has passed since it began.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.inputs.passing import when
from tests.inputs.records import Pass

WEEK_S = 7 * 24 * 3600.0
MARK = "round"
MOST_NAMES = 20
"""So many parts are named in the closing line; more are counted."""


@dataclass(frozen=True)
class Standing:
    """How a part stands in the round."""

    before: Pass | None
    """When it last passed with ``--all``, on whatever inputs."""
    passed: bool
    """Whether that was in this round, on the present inputs."""


def shard(text: str) -> tuple[int, int]:
    """``2/6`` as two numbers; an option's error for anything else."""
    number, slash, count = text.partition("/")
    if not slash or not number.isdecimal() or not count.isdecimal() or not 1 <= int(number) <= int(count):
        raise argparse.ArgumentTypeError(f"{text!r} is not K/N with K from 1 to N, such as 2/6")
    return int(number), int(count)


def began(folder: Path) -> float:
    """When the round began (Unix time); it begins now where there is none, or where it has lasted for a week."""
    mark = folder / MARK
    if mark.is_file() and mark.stat().st_mtime > time.time() - WEEK_S:
        return mark.stat().st_mtime
    folder.mkdir(parents=True, exist_ok=True)
    mark.touch()
    return mark.stat().st_mtime


def closing_lines(folder: Path, standings: Mapping[str, Standing]) -> Iterator[str]:
    """What has not passed on the present inputs, and since when; ends the round when that is nothing."""
    missing = [part for part, standing in standings.items() if not standing.passed]
    if not missing:
        oldest = min(standing.before.at for standing in standings.values() if standing.before)
        (folder / MARK).unlink(missing_ok=True)
        yield f"all {len(standings)} parts have passed on these inputs, the first at {when(oldest)}: the round is over"
        return
    named = [f"{part} ({_since(standings[part])})" for part in missing[:MOST_NAMES]]
    more = [f"and {len(missing) - MOST_NAMES} more"] if len(missing) > MOST_NAMES else []
    yield f"{len(missing)} of {len(standings)} parts not passed on these inputs: {', '.join([*named, *more])}"


def _since(standing: Standing) -> str:
    return f"last passed {when(standing.before.at)}" if standing.before else "never passed here"
