"""The table of ``top``: what engines and gateways do at this moment, no wider and no longer than a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

from provisioner.measuring.live import CardUse, Look, Rates, Row, State
from provisioner.report.style import PLAIN, Style, safe_line

HEAD = ("CONTAINER/SERVICE", "STATE", "RUNNING", "WAITING", "TOKENS/S IN", "OUT", "CACHE", "VRAM", "MODEL")
STATE, CACHE, VRAM, MODEL = 1, 6, 7, 8
DROPPED = (MODEL, CACHE, VRAM, 3, 4, 2, 5)
"""The columns that are left out where a terminal is too narrow, the first of them first."""
NONE = "-"
PADDING = "  "
SHORTEST_MODEL = 10
GIB = 2**30
NARROWEST = 20
MOOD = {
    State.ANSWERS: "green",
    State.LOADS: "yellow",
    State.ENDS: "yellow",
    State.ASLEEP: "dim",
    State.STOPPED: "yellow",
    State.FAILED: "red",
    State.NOT_THERE: "red",
    State.NO_ANSWER: "red",
}
MORE = "…"


def live_text(
    rows: Sequence[Row], cards: Sequence[CardUse], columns: int = 0, lines: int = 0, style: Style = PLAIN
) -> str:
    """The table, below it the cards and what was said in words; ``columns`` and ``lines`` of a terminal, 0: any."""
    width = max(columns, NARROWEST) if columns else 0
    table = _fitted([HEAD, *map(_cells, rows)], width)
    text = [style.paint(_line(table[0], table), "bold")]
    for row, cells in zip(rows, table[1:], strict=True):
        text.append(_line(cells, table, MOOD[row.look.state], style))
    below = [_card_text(card) for card in cards]
    below += [f"{row.address}: {safe_line(row.look.problem)}" for row in rows if row.look.problem]
    if below:
        text += ["", *(_cut(line, width) for line in below)]
    if lines and len(text) > lines:
        left_out = len(text) - lines + 1
        text = [*text[: lines - 1], _cut(f"{MORE} {left_out} lines more", width)]
    return "\n".join(text)


def live_lines(rows: Sequence[Row], cards: Sequence[CardUse]) -> dict[str, Any]:
    """The same for programs; null is what nobody told."""
    return {"services": [_plain(row) for row in rows], "cards": [_plain_card(card) for card in cards]}


def _plain(row: Row) -> dict[str, Any]:
    look, rates = row.look, row.rates
    told: dict[str, Any] = {
        "target": row.address,
        "state": look.state,
        "running": look.running,
        "waiting": look.waiting,
    }
    told |= {"read_per_s": round(rates.read, 3) if rates else None}
    told |= {"written_per_s": round(rates.written, 3) if rates else None}
    told |= {"cache": look.cache, "vram": look.vram, "models": look.models, "problem": look.problem}
    return told


def _plain_card(card: CardUse) -> dict[str, Any]:
    return {"container": card.container, "name": card.name, "used": card.used, "size": card.size}


def _cells(row: Row) -> tuple[str, ...]:
    look = row.look
    read, written = _rates_text(row.rates)
    return (
        safe_line(row.address),
        str(look.state),
        _count_text(look.running),
        _count_text(look.waiting),
        read,
        written,
        NONE if look.cache is None else f"{100 * look.cache:.0f} %",
        _vram_text(look),
        safe_line(", ".join(look.models)) or NONE,
    )


def _rates_text(rates: Rates | None) -> tuple[str, str]:
    return (NONE, NONE) if rates is None else (f"{rates.read:.1f}", f"{rates.written:.1f}")


def _count_text(number: int | None) -> str:
    return NONE if number is None else str(number)


def _vram_text(look: Look) -> str:
    return NONE if look.vram is None else f"{look.vram / GIB:.1f} GiB"


def _card_text(card: CardUse) -> str:
    """What all that use a card have of it, of which a container may see one part only."""
    return f"{card.container}: {card.used / GIB:.1f} of {card.size / GIB:.1f} GiB of {safe_line(card.name)} are used"


def _fitted(rows: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """The rows no wider than that: the models' names are cut first, then columns are left out, then the rest is cut."""
    kept = [list(row) for row in rows]
    if not width:
        return kept
    over = _width_of(kept) - width
    if over > 0:
        longest = max(cells_of(row[MODEL]) for row in kept)
        for row in kept:
            row[MODEL] = _cut(row[MODEL], max(longest - over, SHORTEST_MODEL))
    dropped: set[int] = set()
    for column in DROPPED:
        shown = [[cell for number, cell in enumerate(row) if number not in dropped] for row in kept]
        if _width_of(shown) <= width:
            return shown
        dropped.add(column)
    shown = [[cell for number, cell in enumerate(row) if number not in dropped] for row in kept]
    over = _width_of(shown) - width
    for row in shown:
        if over > 0:
            row[0] = _cut(row[0], max(max(cells_of(one[0]) for one in shown) - over, 1))
    return shown


def _width_of(rows: Sequence[Sequence[str]]) -> int:
    return sum(_widths(rows)) + len(PADDING) * (len(rows[0]) - 1)


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(cells_of, column)) for column in zip(*rows, strict=True)]


def _line(cells: Sequence[str], rows: Sequence[Sequence[str]], colour: str = "", style: Style = PLAIN) -> str:
    parts = []
    for number, (cell, width) in enumerate(zip(cells, _widths(rows), strict=True)):
        padded = cell + " " * (width - cells_of(cell))
        parts.append(style.paint(padded, colour) if colour and number == STATE else padded)
    return PADDING.join(parts).rstrip()


def cells_of(text: str) -> int:
    """How many places of a terminal a text takes: two for each wide character, none for one that combines."""
    if text.isascii():
        return len(text)
    return sum(map(_cells_of_character, text))


def _cells_of_character(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _cut(text: str, width: int) -> str:
    """The text in so many places, with a mark where something of it is left out; 0: all of it."""
    if not width or cells_of(text) <= width:
        return text
    kept, used = "", 0
    for character in text:
        used += _cells_of_character(character)
        if used > width - 1:
            break
        kept += character
    return kept + MORE
