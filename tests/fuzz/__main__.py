"""Run targets within a limit of memory; what broke is printed as a line of JSON each."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from unittest.mock import patch

from tests.fuzz.harness import failures_of, limit_memory
from tests.fuzz.targets import TARGETS, no_network

SEED = 1
COUNT = 5000
MOST_FAILURES = 20


def main() -> int:
    """Give each target its part of all inputs; 1 when something broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"one of {', '.join(TARGETS)}")
    parser.add_argument("--count", type=int, default=COUNT, help="inputs of all targets together")
    parser.add_argument("--seed", type=int, default=SEED)
    asked = parser.parse_args()
    chosen = {name: target for name, target in TARGETS.items() if name in (asked.targets or TARGETS)}
    whole = sum(target.weight for target in chosen.values())
    limit_memory()
    found = 0
    with tempfile.TemporaryDirectory() as folder, patch("urllib.request.OpenerDirector.open", no_network):
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        for name, target in chosen.items():
            began, count = time.process_time(), -(-asked.count * target.weight // whole)
            for failure in failures_of(name, target, Path(folder), seed=asked.seed, count=count):
                sys.stdout.write(json.dumps(asdict(failure)) + "\n")
                sys.stdout.flush()
                found += 1
                if found == MOST_FAILURES:
                    return 1
            sys.stderr.write(f"{name}: {count} inputs in {time.process_time() - began:.1f} s\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
