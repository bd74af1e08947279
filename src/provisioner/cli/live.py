"""Progress on a terminal: a block for each container or artifact, under it what its roles do, redrawn in place."""

from __future__ import annotations

import threading
from collections.abc import Callable

from rich.console import Console as RichConsole
from rich.live import Live
from rich.table import Table
from rich.text import Text

from provisioner.cli.blocks import Block, Row, picture_rows
from provisioner.cli.progress import ApplyEvent, row_of
from provisioner.report.style import duration_text, safe_line
from provisioner.values.events import ApplyComplete, ApplyErrored, ApplyProgress, ApplyStart

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
                block.begin(event.action, now)
            elif isinstance(event, ApplyProgress):
                block.go_on(role, event.message, now)
            elif isinstance(event, ApplyComplete):
                block.finish(event.elapsed_s, now)
            elif isinstance(event, ApplyErrored):
                block.fail(event.message, now)

    def picture(self) -> Table:
        """What the display shows now: never more lines than the terminal has."""
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, justify="right")
        table.add_column(no_wrap=True, overflow="ellipsis", style="dim")
        with self._lock:
            rows = picture_rows(list(self._blocks.values()), self._clock(), self._console.size.height - 1)
        for row in rows:
            table.add_row(*self._cells(row))
        return table

    def _cells(self, row: Row) -> tuple[Text, Text, Text, Text]:
        mark = "  " + (self._marks.get(row.state, "  ")) if row.is_role else ""
        colour = _COLOURS[row.state]
        name = Text(mark, style=colour) + Text(safe_line(row.name), style="" if row.is_role else "bold")
        took = "" if row.elapsed_s is None else duration_text(row.elapsed_s)
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
