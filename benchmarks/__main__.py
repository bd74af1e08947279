"""Run the named benchmarks, or all, and print their figures as a Markdown table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from benchmarks import cli, containers, up
from benchmarks.measuring import Row

BENCHMARKS: Mapping[str, Callable[[], list[Row]]] = {"cli": cli.rows, "containers": containers.rows, "up": up.rows}


def main(names: list[str]) -> int:
    """0, or 64 for a benchmark that there is not."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        sys.stderr.write(f"no benchmark {', '.join(unknown)}: there are {', '.join(BENCHMARKS)}\n")
        return 64
    sys.stdout.write("| what | median | unit | runs |\n|---|---|---|---|\n")
    for name in names or BENCHMARKS:
        for row in BENCHMARKS[name]():
            sys.stdout.write(f"| {row.what} | {row.median:.3f} | {row.unit} | {len(row.values)} |\n")
            sys.stdout.flush()
    return 0


sys.exit(main(sys.argv[1:]))
