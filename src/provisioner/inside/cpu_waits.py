"""For how long something of a machine has waited for a processor, as its kernel counts it.

What waits by a limit of its own (a control group's) is told apart: that is no other work. Python alone is enough.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

PRESSURE = Path("/proc/pressure/cpu")
GROUPS, STAT = Path("/sys/fs/cgroup"), "cpu.stat"
MICRO = 1e6
PARTS_OF = {"usec": 1, "time": 1000}
"""By what a count of ``cpu.stat`` is parted to be microseconds: its second version says them, its first nanoseconds."""
UNKNOWN = -1.0


@dataclass(frozen=True)
class Waits:
    """Two counts of microseconds, and at which moment of its clock they were read.

    ``waited_us``: in which something of the whole host waited, -1 where its kernel does not tell; ``throttled_us``: in
    which a limit kept this container from a processor.
    """

    at_s: float
    waited_us: int
    throttled_us: int

    def share_until(self, later: Waits) -> float:
        """Which part of the time between the two something waited; ``UNKNOWN`` where nobody tells."""
        took_s = later.at_s - self.at_s
        if min(self.waited_us, later.waited_us) < 0 or took_s <= 0:
            return UNKNOWN
        waited = later.waited_us - self.waited_us - (later.throttled_us - self.throttled_us)
        return min(max(waited, 0) / MICRO / took_s, 1.0)


def waits() -> Waits:
    """The counts as they are now."""
    return Waits(time.monotonic(), _waited_us(PRESSURE), _container_throttled_us())


def throttled_us(stat: Path) -> int:
    """For how many microseconds the limit of a control group kept it from a processor; 0 where it has none."""
    try:
        text = stat.read_text(encoding="ascii")
    except OSError:
        return 0
    found = re.search(r"^throttled_(usec|time) (\d+)$", text, re.MULTILINE)
    return int(found[2]) // PARTS_OF[found[1]] if found else 0


def _container_throttled_us() -> int:
    """The same of the limit of the whole container, in either version of control groups."""
    return throttled_us(GROUPS / STAT) + throttled_us(GROUPS / "cpu" / STAT)


def _waited_us(pressure: Path) -> int:
    """For how many microseconds something has waited for a processor; -1 where the kernel does not tell."""
    try:
        found = re.search(r"^some .*total=(\d+)$", pressure.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return -1
    return int(found[1]) if found else -1
