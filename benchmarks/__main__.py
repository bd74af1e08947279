"""Run the named benchmarks, or all, and print their figures as a Markdown table."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks import (
    changed,
    cli,
    cluster,
    containers,
    desktop,
    engine_terms,
    homes,
    looks,
    memory,
    module_server,
    noop,
    one_lab,
    proxmox,
    speech,
    speech_memory,
    transports,
    up,
    where,
)
from benchmarks.goals import misses
from benchmarks.labs import Labs
from benchmarks.measuring import HEADER, Row

BENCHMARKS: Mapping[str, Callable[[Labs, int], list[Row]]] = {
    "cli": lambda _labs, _rounds: cli.rows(),
    "cluster": cluster.rows,
    "containers": lambda _labs, _rounds: containers.rows(),
    "up": lambda _labs, _rounds: up.rows(),
    "noop": noop.rows,
    "changed": changed.rows,
    "memory": memory.rows,
    "module-server": module_server.rows,
    "transports": transports.rows,
    "where": where.rows,
    "proxmox": proxmox.rows,
    "speech": speech.rows,
    "speech-memory": speech_memory.rows,
    "engine-terms": engine_terms.rows,
    "looks": looks.rows,
    "one-lab": one_lab.rows,
    "homes": homes.rows,
    "desktop": desktop.rows,
}
ROUNDS = 5
MISSED, WRONG_USAGE = 1, 64


def main(arguments: Sequence[str]) -> int:
    """0; 1 when ``--gate`` finds a goal missed; 64 for a benchmark that there is not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--gate", action="store_true", help="end with 1 when a goal is missed, and name it")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of those that take turns (default: {ROUNDS})")
    wanted = parser.parse_args(arguments)
    unknown = [name for name in wanted.names if name not in BENCHMARKS]
    if unknown:
        sys.stderr.write(f"no benchmark {', '.join(unknown)}: there are {', '.join(BENCHMARKS)}\n")
        return WRONG_USAGE
    names = wanted.names or list(BENCHMARKS)
    measured = _measure(names, wanted.rounds)
    missed = misses(measured, names) if wanted.gate else []
    sys.stderr.write("".join(f"missed: {line}\n" for line in missed))
    return MISSED if missed else 0


def _measure(names: Sequence[str], rounds: int) -> list[Row]:
    # A polite end removes the labs, as ctrl-c does.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(128 + signal.SIGTERM))
    sys.stdout.write(f"{_machine()}\n\n{HEADER}")
    found: list[Row] = []
    with Labs() as labs:
        for name in names:
            rows = BENCHMARKS[name](labs, rounds)
            sys.stdout.write("".join(f"{row.line()}\n" for row in rows))
            sys.stdout.flush()
            found += rows
    sys.stdout.write(f"\nLoad at the end: {_load()}\n")
    return found


def _machine() -> str:
    memory_kib = int(Path("/proc/meminfo").read_text(encoding="ascii").split()[1])
    return (
        f"{os.cpu_count()} CPUs, {memory_kib / 2**20:.0f} GiB, Linux {platform.release()}, Python "
        f"{platform.python_version()}, ansible-core {version('ansible-core')}; load at the start: {_load()}"
    )


def _load() -> str:
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
