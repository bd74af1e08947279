"""As much of loguru as tabbyAPI and its launcher use: sinks, levels and the patcher of all records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


class Logger:
    """Hands each record to the patcher, and then to every sink."""

    def __init__(self) -> None:
        self.sinks: list[Callable[[str], Any]] = []
        self.patcher: Callable[[dict[str, Any]], None] = lambda _: None

    def configure(self, patcher: Callable[[dict[str, Any]], None]) -> None:
        """Set the patcher."""
        self.patcher = patcher

    def remove(self) -> None:
        """Forget all sinks; the patcher stays."""
        self.sinks.clear()

    def add(self, sink: Callable[[str], Any] | str) -> int:
        """A function, or the name of a file."""
        if isinstance(sink, str):
            path = Path(sink.format(time="now"))
            path.parent.mkdir(parents=True, exist_ok=True)
            sink = path.open("a", encoding="utf-8").write
        self.sinks.append(sink)
        return len(self.sinks)

    def log(self, level: str, message: str) -> None:
        """One record."""
        record = {"message": message}
        self.patcher(record)
        for sink in self.sinks:
            for line in record["message"].splitlines():
                sink(f"{level}: {line}")

    def info(self, message: str) -> None:
        """A record of that level."""
        self.log("INFO", message)

    def warning(self, message: str) -> None:
        """A record of that level."""
        self.log("WARNING", message)

    def error(self, message: str) -> None:
        """A record of that level."""
        self.log("ERROR", message)


logger = Logger()
