"""Twenty modules on this machine, as a connection plugin runs them in a container: by a Python each, and by the server.

What Ansible and the way into a container cost is left out: only what runs a module is measured, and who asks for it.
"""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic, process_time
from typing import Any

from benchmarks.labs import Labs
from benchmarks.measuring import Row, say
from tests.module_payloads import payload
from tests.module_servers import Box

MODULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("command", {"argv": ["true"]}),
    ("stat", {"path": "/etc/hostname"}),
    ("file", {"path": "/etc/hostname"}),
    ("slurp", {"src": "/etc/hostname"}),
    ("getent", {"database": "passwd", "key": "root"}),
)
TIMES = 4
USUAL, SERVED, FIRST = (
    "20 modules, a Python each",
    "20 modules, by the server",
    "the start of a server and its first module",
)


def rows(_labs: Labs, rounds: int) -> list[Row]:
    """Seconds of both ways, in turns, and of the start of a server."""
    payloads = [payload(module, arguments) for module, arguments in MODULES] * TIMES
    found: dict[str, list[tuple[float, float]]] = {USUAL: [], SERVED: [], FIRST: []}
    with tempfile.TemporaryDirectory(prefix="ms-") as folder:
        for number in range(rounds):
            say(f"module server: round {number + 1}")
            box = Box(Path(folder), name=f"round-{number}")
            found[USUAL].append(_cost(box, box.usual, payloads))
            found[FIRST].append(_cost(box, box.served, payloads[:1]))
            found[SERVED].append(_cost(box, box.served, payloads))
            box.stop()
    return [Row(what, [wall for wall, _ in costs], "s", [cpu for _, cpu in costs]) for what, costs in found.items()]


def _cost(box: Box, run: Callable[[bytes], object], payloads: Sequence[bytes]) -> tuple[float, float]:
    """Seconds on the wall and of the CPUs."""
    before, started = _cpu_s(box), monotonic()
    for content in payloads:
        run(content)
    return monotonic() - started, _cpu_s(box) - before


def _cpu_s(box: Box) -> float:
    """CPU seconds of this process, its children, the server and the server's children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = process_time() + children.ru_utime + children.ru_stime
    if not box.sockets:
        return own
    fields = Path(f"/proc/{box.server()}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    ticks = sum(int(field) for field in fields[11:15])
    return own + ticks / os.sysconf("SC_CLK_TCK")
