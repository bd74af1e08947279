"""Progress on a terminal: a line for each thing that is done to a container or artifact, what it does now, how long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console as RichConsole
from rich.live import Live
from rich.table import Table
from rich.text import Text

from provisioner.cli.progress import ApplyEvent, doing_text, row_of
from provisioner.events import ApplyComplete, ApplyErrored, ApplyProgress, ApplyStart
from provisioner.report.style import duration_text, safe_line

REFRESH_PER_S = 4
_COLOURS = {"done": "green", "failed": "red"}


@dataclass
class _Row:
    target: str
    action: str
    begun: float
    state: str = ""
    message: str = ""
    elapsed_s: float | None = None


class LiveProgress:
    """A display that redraws itself in place until it is closed; its last picture stays."""

    def __init__(self, *, color: bool, clock: Callable[[], float], console: RichConsole | None = None) -> None:
        self._clock = clock
        self._rows: list[_Row] = []
        self._latest: dict[str, _Row] = {}
        self._lock = threading.Lock()
        self._console = console or RichConsole(no_color=not color, highlight=False)
        self._live = Live(console=self._console, get_renderable=self.picture, refresh_per_second=REFRESH_PER_S)
        self._live.start()

    def handle(self, event: ApplyEvent) -> None:
        """Take one event into the picture."""
        with self._lock:
            now = self._clock()
            if isinstance(event, ApplyStart):
                self._begin(event.target, event.action, now)
                return
            target, prefix = row_of(event.target, self._latest)
            row = self._latest.get(target) or self._begin(target, "", now)
            if isinstance(event, ApplyProgress):
                row.message = prefix + event.message if event.message else ""
            elif isinstance(event, ApplyComplete):
                row.state, row.message, row.elapsed_s = "done", "", event.elapsed_s
            elif isinstance(event, ApplyErrored):
                row.state, row.message, row.elapsed_s = "failed", event.message, now - row.begun

    def _begin(self, target: str, action: str, now: float) -> _Row:
        row = self._latest[target] = _Row(target, action, now)
        self._rows.append(row)
        return row

    def picture(self) -> Table:
        """What the display shows now."""
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True, style="bold")
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, justify="right")
        table.add_column(no_wrap=True, overflow="ellipsis", style="dim")
        with self._lock:
            now = self._clock()
            for row in self._rows:
                took = duration_text(now - row.begun if row.elapsed_s is None else row.elapsed_s)
                state = Text(f"{doing_text(row.action)} {row.state}".strip(), style=_COLOURS.get(row.state, ""))
                table.add_row(Text(safe_line(row.target)), state, Text(took), Text(safe_line(row.message)))
        return table

    def print_above(self, text: str) -> bool:
        """Print ``text`` above the picture."""
        self._console.print(Text.from_ansi(text), soft_wrap=True)
        return True

    def close(self) -> None:
        """Stop redrawing."""
        self._live.stop()
