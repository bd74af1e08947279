"""Progress in plain lines: what begins, what takes long, what ended. For pipes, logs and CI."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Protocol

from provisioner.report.style import Style, duration_text, safe_line
from provisioner.values.address import Address
from provisioner.values.events import ApplyComplete, ApplyErrored, ApplyProgress, ApplyStart, Event

ApplyEvent = ApplyStart | ApplyProgress | ApplyComplete | ApplyErrored

THRESHOLD_S = 2.0
HEARTBEAT_S = 30.0
TICK_S = 0.5
LONG_S = 60.0
"""From so many seconds on people are told how long a work took the last time."""
DOING = {
    "create": "creating",
    "build": "building",
    "import": "importing",
    "prepare": "preparing",
    "update": "changing",
    "replace": "replacing",
    "delete": "deleting",
    "start": "starting",
    "stop": "stopping",
    "configure": "configuring",
    "snapshot": "taking a snapshot",
    "rollback": "rolling back",
    "clone": "cloning",
    "adopt": "adopting",
    "rejoin": "bringing back",
    "restore": "restoring",
    "close": "keeping people out",
    "open": "letting people in again",
}


def row_of(target: str, rows: Container[str]) -> tuple[str, str]:
    """The row that shows ``target``, and what stands before its message: a service is shown in its container's row."""
    address = Address(target)
    container, service = address.container, address.service
    return (target, "") if target in rows or not service else (container, f"{service}: ")


def doing_text(action: str) -> str:
    """An action as what goes on: "create" → "creating"; one without a word of its own as it is."""
    return DOING.get(action, action)


class Progress(Protocol):
    """Something that shows how work goes on."""

    def handle(self, event: ApplyEvent) -> None:
        """Take one event."""

    def print_above(self, text: str) -> bool:
        """Print ``text`` without disturbing the display; False when the caller may print it as ever."""

    def close(self) -> None:
        """Stop showing."""


@dataclass
class _Work:
    action: str
    begun: float
    message: str
    since: float
    told: float | None


class PlainProgress:
    """A line when work on a target begins and ends, a line for each long step, a heartbeat for very long ones."""

    def __init__(
        self,
        write: Callable[[str], None],
        style: Style,
        clock: Callable[[], float],
        *,
        threshold_s: float = THRESHOLD_S,
        lock: threading.RLock | None = None,
    ) -> None:
        self._write = write
        self._style = style
        self._clock = clock
        self._threshold_s = threshold_s
        self._works: dict[str, _Work] = {}
        # The writer's own, where it has one: two locks could wait for each other.
        self._lock = lock or threading.RLock()
        self._closed = threading.Event()
        self._ticker = threading.Thread(target=self._tick_until_closed, daemon=True)
        self._ticker.start()

    def handle(self, event: ApplyEvent) -> None:
        """Say what begins and what ended at once; what goes on is said when it has taken long."""
        with self._lock:
            now = self._clock()
            if isinstance(event, ApplyStart):
                self._works[event.target] = _Work(event.action, now, "", now, now)
                last_s = event.last_s or 0.0
                last_time = f" ({duration_text(last_s)} the last time)" if last_s >= LONG_S else ""
                self._say(event.target, doing_text(event.action) + last_time)
            elif isinstance(event, ApplyProgress):
                self._go_on(event, now)
            elif isinstance(event, ApplyComplete):
                self._works.pop(event.target, None)
                done = self._style.paint(f"{doing_text(event.action)} done", "green")
                self._say(event.target, f"{done} after {duration_text(event.elapsed_s)}")
            else:
                self._works.pop(event.target, None)
                failed = self._style.paint(f"{doing_text(event.action)} failed", "red")
                self._say(event.target, f"{failed}: {safe_line(event.message)}")

    def _go_on(self, event: ApplyProgress, now: float) -> None:
        target, prefix = row_of(event.target, self._works)
        work = self._works.setdefault(target, _Work("", now, "", now, now))
        waits = not event.message
        work.message = prefix + event.message
        if event.goes_on and not waits and work.since != math.inf:
            return  # told when the step has become long, then with each heartbeat
        work.since, work.told = math.inf if waits else now, None
        if not self._threshold_s and not waits:
            self._tell(target, work, now)

    def tick(self) -> None:
        """Say the steps that have become long by now."""
        with self._lock:
            if self._closed.is_set():
                return
            now = self._clock()
            for target, work in self._works.items():
                if work.told is None and now - work.since >= self._threshold_s:
                    self._tell(target, work, now)
                elif work.told is not None and now - work.told >= HEARTBEAT_S:
                    work.told = now
                    what = work.message or doing_text(work.action)
                    self._say(target, f"still {safe_line(what)} ({duration_text(now - work.since)})")

    def print_above(self, text: str) -> bool:
        """Lines need no care: the caller prints."""
        del text
        return False

    def close(self) -> None:
        """Stop looking at the clock; nothing is said after that.

        Whoever closes it may hold the writer's lock, for which the thread that looks may be waiting at this moment: the
        end of that thread is not waited for.
        """
        with self._lock:
            self._closed.set()

    def _tell(self, target: str, work: _Work, now: float) -> None:
        work.told = now
        self._say(target, safe_line(work.message))

    def _say(self, target: str, text: str) -> None:
        self._write(f"{self._style.paint(safe_line(target), 'bold')}: {text}")

    def _tick_until_closed(self) -> None:
        while not self._closed.wait(TICK_S):
            self.tick()


# The pace at which a stream of lines says that one and the same step goes on.

INTERVAL_S = 10.0


class Pace:
    """Which events are worth a line; a build's count changes every other second, for an hour."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told: dict[str, float] = {}

    def is_due(self, event: Event) -> bool:
        """True but for who waits, and for how far a step is when its target had a line in the last ``INTERVAL_S``."""
        if not isinstance(event, ApplyProgress):
            return True
        now = self._clock()
        if not event.message or (event.goes_on and now - self._told.get(event.target, -math.inf) < INTERVAL_S):
            return False
        self._told[event.target] = now
        return True
