"""The ways of a drawing's lines: straight ones and right angles, each with a track of its own between two columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from provisioner.report.graph.layout import HEAD, PADDING, WAY, Arrangement, Item, port_y
from provisioner.report.graph.topology import Edge

TRACK = 12
ARROW_ROOM = 44
"""Between the last track and what a line points at: the arrow, and the number of a fallback."""
MARGIN = 34
LEFT = 40
LARGEST_STEP = 10.0
STRAIGHT = 0.5
"""Ends whose heights differ by less are joined by a straight line."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Rectangle:
    """A place on the page."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.y + self.height


@dataclass(frozen=True)
class Column:
    """From where to where a column goes."""

    left: float
    right: float


@dataclass(frozen=True)
class Drawing:
    """The place of each item by its id, and each line's points in the direction in which it points."""

    places: Mapping[str, Rectangle]
    lines: Sequence[tuple[Edge, Sequence[Point]]]


@dataclass
class _Piece:
    """The part of a line behind the column ``gutter``; ``back``: both of its ends are in that column."""

    gutter: int
    begin: float
    end: float
    back: bool = False
    track: int | None = None


def route(arrangement: Arrangement) -> Drawing:
    """Give everything its place from left to right, as far apart as the lines between need it."""
    heights = _heights(arrangement)
    pieces = [_pieces(arrangement, number, heights[number]) for number in range(len(arrangement.chains))]
    tracks = _tracks([piece for one in pieces for piece in one])
    columns = _columns(arrangement, tracks)
    places = {one.id: _place(one, columns[one.column]) for one in arrangement.items.values()}
    lines = [
        (edge, _points(arrangement, number, pieces[number], columns))
        for number, (edge, _) in enumerate(arrangement.chains)
    ]
    return Drawing(places, lines)


def _column(arrangement: Arrangement, end: str) -> int:
    return arrangement.items[arrangement.owner[end]].column


def _heights(arrangement: Arrangement) -> list[tuple[float, float]]:
    """Where each line leaves its source and meets its target; lines that meet at one side of a card stand apart."""
    meetings: dict[tuple[str, str], list[tuple[float, int, int]]] = defaultdict(list)
    heights: list[list[float]] = []
    for number, (edge, _) in enumerate(arrangement.chains):
        source, target = port_y(arrangement, edge.source, edge.alias), port_y(arrangement, edge.target)
        heights.append([source, target])
        order = _column(arrangement, edge.source) - _column(arrangement, edge.target)
        if not edge.alias:
            meetings[edge.source, "right" if order <= 0 else "left"].append((target, number, 0))
        meetings[edge.target, "left" if order < 0 else "right"].append((source, number, 1))
    for met in meetings.values():
        step = min(LARGEST_STEP, (HEAD - 8) / max(1, len(met) - 1))
        for place, (_, number, end) in enumerate(sorted(met)):
            heights[number][end] += step * (place - (len(met) - 1) / 2)
    return [(source, target) for source, target in heights]


def _pieces(arrangement: Arrangement, number: int, heights: tuple[float, float]) -> list[_Piece]:
    edge, chain = arrangement.chains[number]
    items = [arrangement.items[one] for one in chain]
    if items[0].column == items[-1].column:
        return [_Piece(items[0].column, *heights, back=True)]
    forward = arrangement.owner[edge.source] == chain[0]
    begin, end = heights if forward else heights[::-1]
    stops = [begin, *(one.y + WAY / 2 for one in items[1:-1]), end]
    return [_Piece(one.column, *ends) for one, ends in zip(items, pairwise(stops), strict=False)]


def _tracks(pieces: Sequence[_Piece]) -> dict[int, int]:
    """How many lines turn between a column and the next; each gets its track, so that few of them cross."""
    gutters: dict[int, list[_Piece]] = defaultdict(list)
    for one in pieces:
        if one.back or abs(one.begin - one.end) >= STRAIGHT:
            gutters[one.gutter].append(one)
    for turning in gutters.values():
        for track, one in enumerate(sorted(turning, key=_rank)):
            one.track = track
    return {gutter: len(turning) for gutter, turning in gutters.items()}


def _rank(piece: _Piece) -> tuple[float, ...]:
    if piece.back:
        return (0, abs(piece.begin - piece.end))
    if piece.end < piece.begin:
        return (1, piece.begin, piece.end)
    return (2, -piece.begin, -piece.end)


def _columns(arrangement: Arrangement, tracks: Mapping[int, int]) -> dict[int, Column]:
    columns, x = {}, float(LEFT)
    for number in arrangement.columns:
        width = max(one.width for one in arrangement.items.values() if one.column == number)
        columns[number] = Column(x, x + width)
        x += width + MARGIN + TRACK * tracks.get(number, 0) + ARROW_ROOM
    return columns


def _place(item: Item, column: Column) -> Rectangle:
    return Rectangle(column.left, item.y, column.right - column.left, item.height)


def _inset(item: Item) -> int:
    """Cards stand inside of their containers."""
    return PADDING if item.ports else 0


def _points(
    arrangement: Arrangement, number: int, pieces: Sequence[_Piece], columns: Mapping[int, Column]
) -> list[Point]:
    edge, chain = arrangement.chains[number]
    first, last = arrangement.items[chain[0]], arrangement.items[chain[-1]]
    points = [(columns[first.column].right - _inset(first), pieces[0].begin)]
    for piece, target in zip(pieces, chain[1:], strict=True):
        if piece.track is not None:
            x = columns[piece.gutter].right + MARGIN + TRACK * piece.track
            points += [(x, piece.begin), (x, piece.end)]
        if target.startswith("way:"):
            column = columns[arrangement.items[target].column]
            points += [(column.left, piece.end), (column.right, piece.end)]
    end = columns[last.column]
    points.append((end.right - _inset(last) if pieces[-1].back else end.left + _inset(last), pieces[-1].end))
    is_reversed = not pieces[0].back and arrangement.owner[edge.source] != chain[0]
    return points[::-1] if is_reversed else points
