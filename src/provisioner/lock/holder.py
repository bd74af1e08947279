"""Who holds a lock: a process, told from all others, so that one on its own machine can see whether it still runs."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

_ENDED = frozenset({"Z", "X"})
"""States of a process that has ended and that nobody has asked about yet."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process: ``title`` names it to people, the rest tells it from every other one, here and elsewhere."""

    title: str
    machine: str
    namespace: str
    """Of process ids: containers share their machine's boot id and count processes on their own."""
    pid: int
    start: str
    """When the process started, in ticks since boot: a process id is given again, both together are not."""

    def properties(self) -> dict[str, str]:
        """What it writes on its lock; ``since`` is by its own clock and only to be read by people."""
        return {
            "holder": self.title,
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": self.machine,
            "namespace": self.namespace,
            "pid": str(self.pid),
            "start": self.start,
        }

    def sees_alive(self, properties: Mapping[str, str]) -> bool | None:
        """Whether the holder of that lock still runs; None when that cannot be seen from here."""
        pid, start = properties.get("pid", ""), properties.get("start", "")
        is_here = (properties.get("machine"), properties.get("namespace")) == (self.machine, self.namespace)
        if not is_here or not pid.isdecimal() or not start.isdecimal():
            return None
        found = _process(int(pid))
        if found is None:
            # A system may hide the processes of other users; whether there is one can still be asked.
            return None if _exists(int(pid)) else False
        return found == ("running", start)


def this_process(verb: str) -> Holder:
    """The holder that this process is, running ``provision <verb>``."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    name, pid = socket.gethostname(), os.getpid()
    process = _process(pid)
    return Holder(
        title=f"{_user()}@{name}, pid {pid}, provision {verb}",
        machine=f"{name} {boot}",
        namespace=str(Path("/proc/self/ns/pid").readlink()),
        pid=pid,
        start=process[1] if process else "",
    )


def _process(pid: int) -> tuple[str, str] | None:
    """Whether the process is running or has ended, and its start; None when there is nothing to be seen of it."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the program's name in parentheses, in which anything may stand.
    fields = text.rpartition(")")[2].split()
    return "ended" if fields[0] in _ENDED else "running", fields[19]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
