"""Tasks of a node, by their UPIDs: waited for to their end, with what they say meanwhile."""

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
    """What a task has said so far."""

    client: Client
    path: tuple[str, ...]
    lines: list[str]

    def read(self) -> None:
        """Read what is new."""
        while True:
            found = self.client.get(*self.path, "log", start=len(self.lines), limit=LINES)
            new = [str(line["t"]) for line in found if int(line["n"]) > len(self.lines)]
            if new == [_EMPTY] and not self.lines:
                return
            self.lines += new
            if len(new) < LINES:
                return

    @property
    def last(self) -> str:
        """The last line that is not the end of the log itself."""
        return next((line for line in reversed(self.lines) if line.strip() and not _END.fullmatch(line)), "")


def wait(
    client: Client, upid: str, *, name: str = "", on_progress: OnProgress | None = None, timeout_s: float = TIMEOUT_S
) -> str:
    """The last line that the task said, or its warnings; ``PveError`` with its log when it failed."""
    path = ("nodes", node_of(upid), "tasks", upid)
    log = _Log(client, path, [])
    began = said = time.monotonic()
    poll_s = FIRST_POLL_S
    while (status := client.get(*path, "status"))["status"] != "stopped":
        now = time.monotonic()
        if now - began > timeout_s:
            log.read()
            raise _failure(f"it still runs after {timeout_s:.0f} s: {upid}", log)
        if on_progress and now - said >= SAY_S:
            said = now
            log.read()
            on_progress(name, log.last)
        time.sleep(poll_s)
        poll_s = min(poll_s * GROWTH, LONGEST_POLL_S)
    log.read()
    ended = str(status.get("exitstatus", ""))
    if not _SUCCESS.fullmatch(ended):
        raise _failure(ended or "it ended without saying how", log)
    warnings = [line for line in log.lines if line.startswith("WARN")]
    return "\n".join(warnings) if ended != "OK" and warnings else log.last


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
