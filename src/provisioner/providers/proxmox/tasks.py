"""Wait for the end of a node's tasks, by their UPIDs, and report their log meanwhile."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from provisioner.providers.base import OnProgress
from provisioner.providers.proxmox.failures import PveError

if TYPE_CHECKING:
    from provisioner.providers.proxmox.client import Client

TIMEOUT_S = 3600.0
# Not proxmoxer's Tasks.blocking_status: it looks once a second and sleeps after the end, too, so that a task of 0.2 s
# takes 2 s, and it tells nothing of the log meanwhile.
FIRST_POLL_S = 0.1
LONGEST_POLL_S = 1.0
GROWTH = 1.4
SAY_S = 2.0
LINES = 500
"""Of a log that are asked for at once."""

_SUCCESS = re.compile(r"OK|WARNINGS: \d+")
_END = re.compile(r"TASK (OK|WARNINGS: \d+|ERROR: .*)")
_EMPTY = "no content"


@dataclass(slots=True)
class _Log:
    """The log of a task so far."""

    client: Client
    path: tuple[str, ...]
    lines: list[str]

    def read(self) -> None:
        """Read what is new."""
        while True:
            rows = self.client.get(*self.path, "log", start=len(self.lines), limit=LINES)
            new = [str(row["t"]) for row in rows if int(row["n"]) > len(self.lines)]
            is_empty = new == [_EMPTY] and not self.lines
            if is_empty:
                return
            self.lines += new
            if len(new) < LINES:
                return

    @property
    def last(self) -> str:
        """The last line that is not the end of the log itself."""
        for line in reversed(self.lines):
            if line.strip() and not _END.fullmatch(line):
                return line
        return ""


def wait(
    client: Client, upid: str, *, name: str = "", on_progress: OnProgress | None = None, timeout_s: float = TIMEOUT_S
) -> str:
    """The last line that the task said, or its warnings; ``PveError`` with its log when it failed."""
    path = ("nodes", node_of(upid), "tasks", upid)
    log = _Log(client, path, [])
    began = reported = time.monotonic()
    poll_s = FIRST_POLL_S
    while True:
        status = client.get(*path, "status")
        if status["status"] == "stopped":
            break
        now = time.monotonic()
        if now - began > timeout_s:
            log.read()
            raise _failure(f"it still runs after {timeout_s:.0f} s: {upid}", log)
        if on_progress and now - reported >= SAY_S:
            reported = now
            log.read()
            on_progress(name, log.last)
        time.sleep(poll_s)
        poll_s = min(poll_s * GROWTH, LONGEST_POLL_S)
    log.read()
    return _outcome(str(status.get("exitstatus", "")), log)


def _outcome(exit_status: str, log: _Log) -> str:
    """The warnings of a task that succeeded, or its last line; ``PveError`` when it failed."""
    if not _SUCCESS.fullmatch(exit_status):
        raise _failure(exit_status or "it ended without saying how", log)
    if exit_status == "OK":
        return log.last
    warnings = [line for line in log.lines if line.startswith("WARN")]
    return "\n".join(warnings) or log.last


def lines(client: Client, upid: str) -> list[str]:
    """All that a task has said, but for how it ended."""
    log = _Log(client, ("nodes", node_of(upid), "tasks", upid), [])
    log.read()
    return [line for line in log.lines if not _END.fullmatch(line)]


def node_of(upid: str) -> str:
    """The node that a task runs on."""
    return upid.split(":")[1]


def _failure(message: str, log: _Log) -> PveError:
    error = PveError(message)
    error.log = "\n".join(log.lines)
    return error
