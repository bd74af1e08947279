"""Progress on a terminal: a block for each container or artifact, redrawn in place, as far as rows fit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

from rich.console import Console as RichConsole
from rich.live import Live
from rich.table import Table
from rich.text import Text

from provisioner.cli.progress import LONG_S, ApplyEvent, doing_text, row_of
from provisioner.report.style import duration_text, safe_line
from provisioner.values.events import ApplyComplete, ApplyErrored, ApplyProgress, ApplyStart

# The memory of a live display: what is done to each container, and the rows of that which fit on a terminal.

State = Literal["", "done", "failed"]
PHASE = " | "
"""A task is named "phase | words"."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line: a container, one of its roles, or how many are not shown."""

    name: str
    doing: str = ""
    elapsed_s: float | None = None
    message: str = ""
    state: State = ""
    is_role: bool = False
    last_s: float | None = None
    """Seconds that the same work took the last time."""


@dataclass
class Role:
    """One role that works in a container: since when, until when (None: now), and what it does."""

    name: str
    begun: float
    until: float | None = None
    phase: str = ""
    words: str = ""
    state: State = ""

    def row(self, now: float) -> Row:
        """Its line; of one that is done only that, and how long it took."""
        elapsed_s = (now if self.until is None else self.until) - self.begun
        if self.state == "done":
            return Row(self.name, "", elapsed_s, state="done", is_role=True)
        return Row(self.name, self.phase, elapsed_s, self.words, self.state, is_role=True)


@dataclass
class Block:
    """One container or artifact: what is done to it, since when, and its roles in the order of their work."""

    name: str
    begun: float
    action: str = ""
    last_s: float | None = None
    state: State = ""
    message: str = ""
    elapsed_s: float | None = None
    roles: dict[str, Role] = field(default_factory=dict)
    past: list[Row] = field(default_factory=list)
    """What was done to it before, such as its creation before its configuration."""

    def begin(self, event: ApplyStart, now: float) -> None:
        """Something else is done to it from now on."""
        if self.state == "done":
            self.past.append(Row(f"{doing_text(self.action)} done", "", self.elapsed_s, state="done", is_role=True))
        self.action, self.begun, self.last_s = event.action, now, event.last_s
        self.state, self.message, self.elapsed_s = "", "", None
        self.roles.clear()

    def go_on(self, name: str, message: str, now: float) -> None:
        """It, or one of its roles, does this now; an empty message: it waits."""
        if not name:
            self.message = message
            return
        before = self._working
        if message and before is not None and before.name != name:
            before.state, before.until = "done", now if before.until is None else before.until
        role = self.roles.setdefault(name, Role(name, now))
        phase, separator, words = message.partition(PHASE)
        if message:
            role.phase, role.words = (phase, words) if separator else ("", message)
            role.state, role.until = "", None
        else:
            role.words, role.until = "", now

    def finish(self, elapsed_s: float, now: float) -> None:
        """It is done, and so are its roles."""
        self.state, self.message, self.elapsed_s = "done", "", elapsed_s
        for role in self.roles.values():
            role.state, role.until = "done", now if role.until is None else role.until

    def fail(self, message: str, now: float) -> None:
        """It has failed, in the role that worked last."""
        self.state, self.message, self.elapsed_s = "failed", message, now - self.begun
        role = self._working
        if role is not None:
            role.state, role.until = "failed", now if role.until is None else role.until

    def rest(self) -> None:
        """The display ends: of what was only looked at, every role that waits is done."""
        for role in self.roles.values():
            if not self.action and role.until is not None:
                role.state = "done"

    def wait_for(self, working: Sequence[str]) -> None:
        """Say whom it waits for where its last role has nothing to do; it goes on when they have come as far."""
        role = self._working
        if role is not None and role.until is not None and not self.state:
            role.words = f"waits for {', '.join(working)}" if working else ""

    @property
    def is_working(self) -> bool:
        """Return True while something is done in the block."""
        role = self._working
        return not self.state and (role is None or role.until is None)

    @property
    def _working(self) -> Role | None:
        return next((role for role in reversed(self.roles.values()) if not role.state), None)

    def head(self, now: float) -> Row:
        """Its own line."""
        elapsed_s = now - self.begun if self.elapsed_s is None else self.elapsed_s
        row = Row(self.name, f"{doing_text(self.action)} {self.state}".strip(), elapsed_s, self.message, self.state)
        return row if self.state else replace(row, last_s=self.last_s)

    def line(self, now: float) -> Row:
        """All of it in one line: what its last role does stands beside its own name."""
        role, head = self._working, self.head(now)
        if role is None or self.message:
            return head
        parts = [part for part in (role.name, role.phase, role.words) if part]
        return replace(head, message=": ".join(parts))

    def rows(self, now: float) -> list[Row]:
        """Its line, one for each thing that was done before, one for each role."""
        return [self.head(now), *self.past, *(role.row(now) for role in self.roles.values())]


def picture_rows(blocks: Sequence[Block], now: float, height: int) -> list[Row]:
    """The most telling picture that has at most ``height`` lines; what failed is always in it.

    First what is done becomes one line, then each container; then what still works is counted.
    """
    done = [block for block in blocks if block.state == "done"]
    others = [block for block in blocks if block.state != "done"]
    summary = [Row(f"{len(done)} done", state="done")] if done else []
    whole = _joined(block.rows(now) for block in blocks)
    if len(whole) <= height:
        return whole
    shorter = [*summary, *_joined(block.rows(now) for block in others)]
    if len(shorter) <= height:
        return shorter
    lines = [*summary, *(block.line(now) for block in others)]
    if len(lines) <= height:
        return lines
    failed = [block.line(now) for block in others if block.state == "failed"]
    working = [block.line(now) for block in others if block.state != "failed"]
    room = max(0, height - len(summary) - len(failed) - 1)
    more = [Row(f"{len(working) - room} more")] if working[room:] else []
    return [*failed, *working[:room], *more, *summary]


def _joined(groups: Iterable[list[Row]]) -> list[Row]:
    return list(chain.from_iterable(groups))


# The display itself.

REFRESH_PER_S = 4
_COLOURS = {"done": "green", "failed": "red", "": ""}
_MARKS = {"done": "✓ ", "failed": "✗ "}
_PLAIN_MARKS = {"done": "+ ", "failed": "! "}


class LiveProgress:
    """A display that redraws itself in place until it is closed; its last picture stays."""

    def __init__(self, *, color: bool, clock: Callable[[], float], console: RichConsole | None = None) -> None:
        self._clock = clock
        self._blocks: dict[str, Block] = {}
        self._lock = threading.Lock()
        self._console = console or RichConsole(no_color=not color, highlight=False)
        is_unicode = self._console.encoding.lower().startswith("utf")
        self._marks = _MARKS if is_unicode else _PLAIN_MARKS
        self._live = Live(console=self._console, get_renderable=self.picture, refresh_per_second=REFRESH_PER_S)
        self._live.start()

    def handle(self, event: ApplyEvent) -> None:
        """Take one event into the picture."""
        with self._lock:
            now = self._clock()
            name, _ = row_of(event.target, self._blocks)
            block = self._blocks.setdefault(name, Block(name, now))
            role = event.target.removeprefix(name).removeprefix("/")
            if isinstance(event, ApplyStart):
                block.begin(event, now)
            elif isinstance(event, ApplyProgress):
                block.go_on(role, event.message, now)
            elif isinstance(event, ApplyComplete):
                block.finish(event.elapsed_s, now)
            elif isinstance(event, ApplyErrored):
                block.fail(event.message, now)

    def picture(self) -> Table:
        """What the display shows now: never more lines than the terminal has."""
        # Only the message gives way where there is little room, then a very long name.
        table = Table.grid(padding=(0, 2), expand=True)
        table.add_column(no_wrap=True, overflow="ellipsis", max_width=self._console.size.width // 2 - 8)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, justify="right")
        table.add_column(no_wrap=True, overflow="ellipsis", style="dim", ratio=1)
        with self._lock:
            blocks = list(self._blocks.values())
            working = [block.name for block in blocks if block.is_working]
            for block in blocks:
                block.wait_for(working)
            rows = picture_rows(blocks, self._clock(), self._console.size.height - 1)
        for row in rows:
            table.add_row(*self._cells(row))
        return table

    def _cells(self, row: Row) -> tuple[Text, Text, Text, Text]:
        mark = "  " + (self._marks.get(row.state, "  ")) if row.is_role else ""
        colour = _COLOURS[row.state]
        name = Text(mark, style=colour) + Text(safe_line(row.name), style="" if row.is_role else "bold")
        took = "" if row.elapsed_s is None else duration_text(row.elapsed_s)
        if row.last_s is not None and row.last_s >= LONG_S:
            took += f" of ~{row.last_s / 60:.0f}m"
        return name, Text(safe_line(row.doing), style=colour), Text(took), Text(safe_line(row.message))

    def print_above(self, text: str) -> bool:
        """Print ``text`` above the picture."""
        self._console.print(Text.from_ansi(text), soft_wrap=True)
        return True

    def close(self) -> None:
        """Stop redrawing; what only reported on itself has ended now."""
        with self._lock:
            for block in self._blocks.values():
                block.rest()
        self._live.stop()
