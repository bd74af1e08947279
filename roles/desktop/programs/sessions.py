"""The sessions of xrdp on this machine, read from /proc: whose, on which display, with which window manager and bus.

``sessions.py`` alone prints them as JSON.
"""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

PROC = Path("/proc")
SERVER = "Xorg"
OURS = "xrdp/xorg.conf"
"""The configuration with which xrdp starts an X server."""
LEADERS = ("mate-session", "x-session-manag")
"""One program by two names, the second cut as the kernel does."""
MANAGER, PANEL = "marco", "mate-panel"
SESMAN = "xrdp-sesman.service"
START_TIME = 19
"""Which word of /proc/PID/stat, counted after the name, is when the process started."""
UNIX = "unix:"
BUS = "DBUS_SESSION_BUS_ADDRESS"
POLITE_S, END_S = 5.0, 60.0


@dataclass(frozen=True)
class Process:
    """A process as /proc shows it."""

    pid: int
    proc: Path = PROC

    @property
    def folder(self) -> Path:
        """Its folder in /proc."""
        return self.proc / str(self.pid)

    @cached_property
    def name(self) -> str:
        """Its program, cut at 15 characters as the kernel does."""
        return self._text("comm").strip()

    @cached_property
    def user(self) -> int:
        """Whose it is; -1 when it has ended."""
        with suppress(OSError):
            return self.folder.stat().st_uid
        return -1

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Its arguments."""
        return tuple(self._text("cmdline").split("\0"))

    @cached_property
    def environment(self) -> Mapping[str, str]:
        """What it was started with."""
        return dict(line.partition("=")[::2] for line in self._text("environ").split("\0") if "=" in line)

    @cached_property
    def started(self) -> int:
        """When it started, in the kernel's ticks since boot; 0 when it has ended."""
        words = self._text("stat").rpartition(")")[2].split()
        return int(words[START_TIME]) if len(words) > START_TIME else 0

    def _text(self, name: str) -> str:
        with suppress(OSError):  # it ended meanwhile
            return (self.folder / name).read_text(encoding="utf-8", errors="replace")
        return ""


@dataclass(frozen=True)
class Session:
    """One X server of xrdp and what runs on it. Processes are 0 where there is none."""

    user: str
    display: str
    server: int
    leader: int = 0
    manager: int = 0
    panel: int = 0
    bus: str = ""
    orphaned: bool = False
    """It is older than sesman, which was restarted and does not know it: the next login gets a second session."""


def processes(proc: Path = PROC) -> Iterator[Process]:
    """All of them."""
    return (Process(int(entry.name), proc) for entry in proc.iterdir() if entry.name.isdigit())


def sessions(proc: Path = PROC, sesman: int | None = None) -> list[Session]:
    """Every session, by display; ``sesman`` is when that was started, else asked of systemd."""
    everything = list(processes(proc))
    servers = [one for one in everything if one.name == SERVER and OURS in " ".join(one.words)]
    if not servers:
        return []
    since = sesman_started(proc) if sesman is None else sesman
    found = []
    for server in servers:
        display = next((word for word in server.words if word.startswith(":")), "")
        mine = [one for one in everything if one.user == server.user and on_display(one, display)]
        roles = [next((one for one in mine if one.name in names), None) for names in (LEADERS, (MANAGER,), (PANEL,))]
        found.append(
            Session(
                name_of(server.user),
                display,
                server.pid,
                *(one.pid if one else 0 for one in roles),
                bus=next((one.environment[BUS] for one in roles if one and BUS in one.environment), ""),
                orphaned=0 < server.started < since,
            )
        )
    return sorted(found, key=lambda one: int(one.display.strip(":") or 0))


def on_display(process: Process, display: str) -> bool:
    """Whether the process was started on the display."""
    return process.environment.get("DISPLAY", "").partition(".")[0] == display


def name_of(user: int) -> str:
    """The user's name, or the number where there is none."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def sesman_started(proc: Path = PROC) -> int:
    """When sesman was started; 0 when it does not run."""
    command = ["systemctl", "show", "--property=MainPID", "--value", SESMAN]
    pid = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() or 0)
    return Process(pid, proc).started if pid else 0


def end(session: Session) -> None:
    """End the session, and whatever still runs on its display after that; nothing else of its user."""
    os.kill(session.leader or session.server, signal.SIGTERM)
    began, asked = time.monotonic(), False
    while OURS in " ".join(Process(session.server).words):  # one that ended and that nobody has asked has no words
        elapsed = time.monotonic() - began
        if elapsed > POLITE_S and not asked:  # nobody is there any more who would end the server
            os.kill(session.server, signal.SIGTERM)
            asked = True
        if elapsed > END_S:
            os.kill(session.server, signal.SIGKILL)
            for left in (f"/tmp/.X11-unix/X{session.display[1:]}", f"/tmp/.X{session.display[1:]}-lock"):  # noqa: S108
                Path(left).unlink(missing_ok=True)  # sesman takes the display for a used one
            break
        time.sleep(0.1)
    for one in processes():
        if on_display(one, session.display) and name_of(one.user) == session.user:
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGTERM)


def bus_answers(address: str) -> bool:
    """Whether something listens at the first address of a session bus; those in a network are taken as they are."""
    first = address.partition(";")[0]
    if not first.startswith(UNIX):
        return bool(first)
    values = dict(pair.partition("=")[::2] for pair in first.removeprefix(UNIX).split(","))
    place = values.get("path") or "\0" + values.get("abstract", "")
    with socket.socket(socket.AF_UNIX) as asked:
        try:
            asked.connect(place)
        except OSError:
            return False
    return True


if __name__ == "__main__":
    os.umask(0o077)
    json.dump([asdict(one) for one in sessions()], sys.stdout)
