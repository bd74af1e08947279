"""Tasks: what runs on after the answer was given, in a thread each, with a log and an exit status."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.doubles.proxmox.errors import ApiError, died

UPID = re.compile(
    r"UPID:([a-zA-Z0-9]([a-zA-Z0-9\-]*[a-zA-Z0-9])?):([0-9A-Fa-f]{8}):([0-9A-Fa-f]{8,9}):([0-9A-Fa-f]{8})"
    r":([^:\s/]+):([^:\s/]*):([^:\s/]+):"
)
SUCCESS = re.compile(r"OK|WARNINGS: \d+")
HELD_S = 120


@dataclass
class Task:
    """One task; ``exitstatus`` is empty while it runs."""

    node: str
    pid: int
    kind: str
    id: str
    user: str
    starttime: int = field(default_factory=lambda: int(time.time()))
    endtime: int = 0
    exitstatus: str = ""
    lines: list[str] = field(default_factory=list)
    warnings: int = 0
    done: threading.Event = field(default_factory=threading.Event)
    interrupted: threading.Event = field(default_factory=threading.Event)

    @property
    def pstart(self) -> int:
        """A number that tells two processes with one id apart."""
        return 0x00A00000 + self.pid

    @property
    def upid(self) -> str:
        """The task's name in the whole cluster."""
        numbers = f"{self.pid:08X}:{self.pstart:08X}:{self.starttime:08X}"
        return f"UPID:{self.node}:{numbers}:{self.kind}:{self.id}:{self.user}:"

    @property
    def is_good(self) -> bool:
        """Whether it has ended well; warnings are no failure."""
        return bool(SUCCESS.fullmatch(self.exitstatus))

    def say(self, text: str) -> None:
        """A line, or several, for the log."""
        self.lines.extend(text.splitlines())

    def warn(self, text: str) -> None:
        """A warning: it is in the log and counted in the exit status."""
        self.warnings += 1
        self.say(f"WARN: {text}")

    def pause(self, seconds: float) -> None:
        """Take time; ends at once, and the task with it, when it is interrupted."""
        if self.interrupted.wait(seconds):
            raise died("received interrupt")

    def run(self, work: Callable[[Task], None]) -> None:
        """Do the work and note how it ended."""
        try:
            work(self)
        except ApiError as error:
            text = error.message.strip()
            self.lines.append(f"TASK ERROR: {text}")
            status = text.splitlines()[0]
        else:
            status = f"WARNINGS: {self.warnings}" if self.warnings else "OK"
            self.lines.append(f"TASK {status}")
        self.endtime = int(time.time())
        self.exitstatus = status
        self.done.set()


class Tasks:
    """All tasks of a cluster, oldest first."""

    def __init__(self) -> None:
        self.all: dict[str, Task] = {}
        self.slow: dict[str, float] = {}
        self.held: dict[str, threading.Event] = {}
        self.duration_s = 0.0
        self._pids = itertools.count(0x1000)
        self._threads: list[threading.Thread] = []

    def begin(self, node: str, kind: str, ident: str, user: str, work: Callable[[Task], None]) -> str:
        """Start a task and give its UPID."""
        task = Task(node, next(self._pids), kind, ident, user)
        over = self.held.get(kind)

        def at_its_pace(task: Task) -> None:
            if over:
                over.wait(HELD_S)
            task.pause(self.slow.get(kind, self.duration_s))
            work(task)

        self.all[task.upid] = task
        thread = threading.Thread(target=task.run, args=(at_its_pace,), name=task.upid, daemon=True)
        self._threads.append(thread)
        thread.start()
        return task.upid

    def wait(self, upid: str, timeout_s: float = 10) -> Task:
        """The task when it has ended; ``TimeoutError`` when it does not."""
        task = self.all[upid]
        if not task.done.wait(timeout_s):
            raise TimeoutError(upid)
        return task

    def close(self) -> None:
        """Interrupt what is under way and wait for its end."""
        for task in list(self.all.values()):
            task.interrupted.set()
        for thread in self._threads:
            thread.join(timeout=5)
