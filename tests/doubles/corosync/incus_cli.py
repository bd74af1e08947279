"""The lab's Incus, asked by its command."""

from __future__ import annotations

import json
import os
from typing import Any

from tests.lab.incus import Lab
from tests.processes import completed

TIMEOUT_S = 300


def incus(lab: Lab, *arguments: object) -> str:
    """Run ``incus`` and give its output; ``RuntimeError`` with its words when it fails."""
    done = completed(["incus", *map(str, arguments)], env=os.environ | lab.environment, timeout_s=TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(f"Unable to run incus {' '.join(map(str, arguments))}\n{done.stderr.strip()}")
    return done.stdout


def query(lab: Lab, path: str) -> Any:
    """The answer of its API."""
    return json.loads(incus(lab, "query", path))
