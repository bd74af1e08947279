"""The ways of a drawing's lines: straight ones and right angles, each with a track of its own between two columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

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

    @property
    def turns(self) -> bool:
        """Whether it is no straight line."""
        return self.back or abs(self.begin - self.end) >= STRAIGHT


def route(arrangement: Arrangement) -> Drawing:
    """Give everything its place from left to right, as far apart as the lines between need it."""
    heights = _heights(arrangement)
    pieces = [_pieces(arrangement, number, heights[number]) for number in range(len(arrangement.chains))]
    tracks = _tracks(chain.from_iterable(pieces))
    columns = _columns(arrangement, tracks)
    places = {item.id: _place(item, columns[item.column]) for item in arrangement.items.values()}
    lines = []
    for number, (edge, _) in enumerate(arrangement.chains):
        lines.append((edge, _points(arrangement, number, pieces[number], columns)))
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
        leaves, meets = _sides(arrangement, edge)
        if not edge.alias:
            meetings[edge.source, leaves].append((target, number, 0))
        meetings[edge.target, meets].append((source, number, 1))
    for meeting in meetings.values():
        step = min(LARGEST_STEP, (HEAD - 8) / max(1, len(meeting) - 1))
        for place, (_, number, end) in enumerate(sorted(meeting)):
            heights[number][end] += step * (place - (len(meeting) - 1) / 2)
    return [(source, target) for source, target in heights]


def _sides(arrangement: Arrangement, edge: Edge) -> tuple[str, str]:
    """The side at which a line leaves its source, and that at which it meets its target."""
    source, target = _column(arrangement, edge.source), _column(arrangement, edge.target)
    if source < target:
        return "right", "left"
    if source > target:
        return "left", "right"
    return "right", "right"


def _pieces(arrangement: Arrangement, number: int, heights: tuple[float, float]) -> list[_Piece]:
    edge, ids = arrangement.chains[number]
    items = [arrangement.items[item] for item in ids]
    if items[0].column == items[-1].column:
        return [_Piece(items[0].column, *heights, back=True)]
    is_forward = arrangement.owner[edge.source] == ids[0]
    begin, end = heights if is_forward else heights[::-1]
    stops = [begin, *(item.y + WAY / 2 for item in items[1:-1]), end]
    return [_Piece(item.column, *ends) for item, ends in zip(items, pairwise(stops), strict=False)]


def _tracks(pieces: Iterable[_Piece]) -> dict[int, int]:
    """How many lines turn between a column and the next; each gets its track, so that few of them cross."""
    gutters: dict[int, list[_Piece]] = defaultdict(list)
    for piece in pieces:
        if piece.turns:
            gutters[piece.gutter].append(piece)
    for turning in gutters.values():
        for track, piece in enumerate(sorted(turning, key=_rank)):
            piece.track = track
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
        width = max(item.width for item in arrangement.items.values() if item.column == number)
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
    edge, ids = arrangement.chains[number]
    first, last = arrangement.items[ids[0]], arrangement.items[ids[-1]]
    points = [(columns[first.column].right - _inset(first), pieces[0].begin)]
    for piece, target in zip(pieces, ids[1:], strict=True):
        if piece.track is not None:
            x = columns[piece.gutter].right + MARGIN + TRACK * piece.track
            points += [(x, piece.begin), (x, piece.end)]
        if target.startswith("way:"):
            column = columns[arrangement.items[target].column]
            points += [(column.left, piece.end), (column.right, piece.end)]
    end = columns[last.column]
    end_x = end.right - _inset(last) if pieces[-1].back else end.left + _inset(last)
    points.append((end_x, pieces[-1].end))
    is_reversed = not pieces[0].back and arrangement.owner[edge.source] != ids[0]
    return points[::-1] if is_reversed else points
