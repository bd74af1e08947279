"""Colour by plain ANSI codes, sizes in words, tables, and text that cannot steer the terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from provisioner.values.quantities import size_text

_RESET = "\033[0m"
_CODES = {
    "bold": "\033[1m",
    "dim": "\033[2m",
    "red": "\033[31m",
    "green": "\033[32m",
    "yellow": "\033[33m",
    "cyan": "\033[36m",
}
_OWN_CODES = re.compile(f"({'|'.join(map(re.escape, (_RESET, *_CODES.values())))})")
_PADDING = "  "
_MOOD = {
    "running": ("green",),
    "healthy": ("green",),
    "busy": ("yellow",),
    "stopped": ("yellow",),
    "frozen": ("yellow",),
    "missing": ("red",),
    "error": ("red",),
    "unhealthy": ("red",),
    "orphan": ("yellow",),
    "drifted": ("yellow",),
}
_SHORT_S = 10.0


@dataclass(frozen=True, slots=True)
class Style:
    """Paints text when ``color`` is on and gives it back unchanged when it is off."""

    color: bool = False

    def paint(self, text: str, *names: str) -> str:
        """``text`` in the named colours ("red", "green", "yellow", "bold", "dim")."""
        if not self.color or not names:
            return text
        codes = "".join(_CODES[name] for name in names)
        return codes + text + _RESET

    def harmless(self, text: str) -> str:
        """Return the text with nothing in it that steers a terminal but the colours that ``paint`` gives."""
        parts = _OWN_CODES.split(text) if self.color else [text]
        parts[::2] = map(safe_text, parts[::2])
        return "".join(parts)


PLAIN = Style()


def safe_text(value: object) -> str:
    """``value`` as text in which control characters are written out: a name must not move the user's cursor."""
    text = str(value)
    if text.isprintable():
        return text
    from provisioner.values.plain_data import written_out  # most lines need no more

    return written_out(text)


def safe_line(value: object) -> str:
    """Like ``safe_text``, on one line."""
    return safe_text(value).replace("\n", "\\n")


def markup_text(value: object) -> str:
    """``value`` as text of a web page: no tag, no attribute and no control character comes out of it."""
    from html import escape  # brings a table of all entities, and most verbs write no page

    return escape(safe_text(value))


def limit_text(size: int | None) -> str:
    """A size in the file's own words ("2GiB"), exact; "no limit" for None."""
    return "no limit" if size is None else size_text(size)


def duration_text(seconds: float) -> str:
    """A duration as people say it: "0.4s", "12s", "3m 05s", "1h 02m"."""
    if seconds < _SHORT_S:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes:02d}m"
    if minutes:
        return f"{minutes}m {rest:02d}s"
    return f"{rest}s"


def indent(text: str, by: int = 2) -> str:
    """Every line of ``text`` moved right."""
    return "\n".join(" " * by + line if line else line for line in text.splitlines())


def count_text(number: int, thing: str) -> str:
    """A number and its noun: "1 artifact", "2 artifacts"."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], style: Style = PLAIN) -> str:
    """Left-aligned columns; a cell that is a known word ("running", "unhealthy") gets its colour."""
    cells = [[safe_line(cell) for cell in row] for row in rows]
    widths = column_widths([head, *cells])
    lines = [style.paint(_PADDING.join(map(str.ljust, head, widths)), "bold").rstrip()]
    for row in cells:
        painted = []
        for cell, width in zip(row, widths, strict=True):
            painted.append(style.paint(cell.ljust(width), *_MOOD.get(cell, ())))
        lines.append(_PADDING.join(painted).rstrip())
    return "\n".join(lines)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines whose columns stand below each other."""
    widths = column_widths(rows)
    return [_PADDING.join(map(str.ljust, row, widths)).rstrip() for row in rows]


def column_widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """The length of the longest cell of each column; every row has as many cells."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]
