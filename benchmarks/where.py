"""Where the time of a no-op ``up`` of one container goes: imports by package, then the parts of the work."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from statistics import median

from benchmarks.labs import BenchLab, Labs
from benchmarks.measuring import BIN, Row, cost
from benchmarks.spans import PARTS, WHOLE

SHOWN_PACKAGES = 8
MICROSECONDS_PER_MS = 1000
MS_PER_S = 1000


def rows(labs: Labs, rounds: int) -> list[Row]:
    """Milliseconds: all imports, the packages that take longest, the work, and its parts."""
    lab = labs.of(1)
    imports = [_imports(lab) for _ in range(rounds)]
    parts = [_parts(lab) for _ in range(rounds)]
    packages = {name for one in imports for name in one}
    longest = sorted(packages, key=lambda name: median(one[name] for one in imports), reverse=True)[:SHOWN_PACKAGES]
    return [
        Row("where: all imports (-X importtime)", [sum(one.values()) for one in imports], "ms"),
        *(Row(f"where: import {name}", [one[name] for one in imports], "ms") for name in longest),
        *(Row(f"where: {name}", [one[name] * MS_PER_S for one in parts], "ms") for name in (WHOLE, *PARTS)),
    ]


def _imports(lab: BenchLab) -> Mapping[str, float]:
    """Milliseconds by package, each module's own time without that of what it imports."""
    found: dict[str, float] = defaultdict(float)
    done = cost([sys.executable, "-X", "importtime", str(BIN / "provision"), "up"], {}, lab.folder)
    for line in done.stderr.splitlines():
        own, _, rest = line.removeprefix("import time:").partition("|")
        if own.strip().isdecimal():
            package = rest.rpartition("|")[2].strip().partition(".")[0]
            found[package] += int(own) / MICROSECONDS_PER_MS
    return found


def _parts(lab: BenchLab) -> dict[str, float]:
    done = cost([sys.executable, "-m", "benchmarks.spans", "up", str(lab.file)], {})
    seconds: dict[str, float] = json.loads(done.output.splitlines()[-1])
    return seconds
