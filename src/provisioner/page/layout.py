"""The layout of a drawing: places of its boxes in columns and bands, the ways of its lines, and their strokes."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean

from provisioner.page.topology import LAN, Box, Edge, Graph, Outside, Service
from provisioner.report.svg import Rectangle, escaped, shown, text, text_width

# Places of boxes: columns from left to right by what asks whom, a band for each host, and heights.

HEAD = 44
"""Height of a service's card without its aliases, of a model and of an upstream."""
ROW = 22
BELOW_ALIASES = 6
BOX_HEAD = 30
PADDING = 10
GAP = 22
FRAME_HEAD = 34
FRAME_PADDING = 16
BAND_GAP = 26
WAY = 12
SLACK = 10
"""So much may things of a band move down to meet their lines."""
TOP = 72
SHORTEST = 150
COLUMNS = {"lan": 0, "door": 1, "app": 2, "gateway": 3, "team": 4, "engine": 5, "upstream": 5, "model": 6}


@dataclass
class Item:
    """Something that takes a place in a column: a container, a thing outside, the network, or a line that passes."""

    id: str
    column: int
    band: int
    width: float
    height: float
    y: float = 0.0
    ports: dict[str, float] = field(default_factory=dict)
    """By the id of a service: where its card begins, below ``y``."""


@dataclass(frozen=True)
class Arrangement:
    """All items with their heights on the page, still without a place from left to right."""

    items: Mapping[str, Item]
    chains: Sequence[tuple[Edge, tuple[str, ...]]]
    """Each line with the items that it touches, from left to right, whichever way it points."""
    bands: Sequence[tuple[float, float]]
    """Top and bottom of each host's band, then that of what is elsewhere (as high as nothing without upstreams)."""
    owner: Mapping[str, str]
    """The item that an end of a line belongs to."""

    @property
    def columns(self) -> list[int]:
        """The columns that are used."""
        return sorted({item.column for item in self.items.values()})


def card_height(service: Service) -> float:
    """The height of a service's card, with a row for each alias."""
    if not service.aliases:
        return HEAD
    return HEAD + ROW * len(service.aliases) + BELOW_ALIASES


def arrange(graph: Graph) -> Arrangement:
    """Give every item its column, its band and its height on the page."""
    items = {item.id: item for item in _items(graph)}
    owner = _owners(items)
    chains = [_chain(edge, number, items, owner) for number, edge in enumerate(graph.edges)]
    arrangement = Arrangement(items, chains, [], owner)
    stacks = _stacks(arrangement)
    bands = _bands(stacks, len(graph.hosts) + 1)
    for (band, _), stack in stacks.items():
        _centre(stack, *bands[band])
    placed = Arrangement(items, chains, bands, owner)
    for (band, column), stack in stacks.items():
        if column != placed.columns[0]:
            _straighten(stack, placed, *bands[band])
    _straighten_network(placed)
    return placed


def _owners(items: Mapping[str, Item]) -> dict[str, str]:
    """The item of each end of a line: an item itself, or one of its ports."""
    owner = {}
    for item in items.values():
        owner[item.id] = item.id
        for port in item.ports:
            owner[port] = item.id
    return owner


def port_y(arrangement: Arrangement, end: str, alias: str = "") -> float:
    """Where a line leaves or meets the middle of an end's card, or of the row of one of its aliases."""
    item = arrangement.items[arrangement.owner[end]]
    row = item.ports.get(f"{end}#{alias}")
    if row is not None:
        return item.y + row
    card = item.ports.get(end, item.height / 2 - HEAD / 2)
    return item.y + (card + HEAD / 2)


def _items(graph: Graph) -> list[Item]:
    bands = {host.name: number for number, host in enumerate(graph.hosts)}
    items = [_box_item(box, bands[box.host]) for box in graph.boxes]
    band_of: dict[str, int] = {}
    for item in items:
        band_of |= dict.fromkeys(item.ports, item.band)
    for outside in graph.outside:
        band = _outside_band(outside, graph, band_of)
        items.append(Item(outside.id, COLUMNS[outside.kind], band, _outside_width(outside), HEAD))
    return items + _network(graph, band_of)


def _outside_band(outside: Outside, graph: Graph, band_of: Mapping[str, int]) -> int:
    """The first band from which a model is used; anything else stands below all hosts."""
    if outside.kind != "model":
        return len(graph.hosts)
    users = [band_of[edge.source] for edge in graph.edges if edge.target == outside.id]
    return min(users, default=0)


def _network(graph: Graph, band_of: Mapping[str, int]) -> list[Item]:
    """The LAN, in the first band that has a service open to it; nothing without such a service."""
    exposed = [band_of[edge.target] for edge in graph.edges if edge.source == LAN]
    if not exposed:
        return []
    return [Item(LAN, COLUMNS[LAN], min(exposed), 96, HEAD)]


def _box_item(box: Box, band: int) -> Item:
    """The container, with a port for each of its services and for each alias of these."""
    ports: dict[str, float] = {}
    texts = [shown(box.name) + shown(box.gpu)]
    y = float(BOX_HEAD)
    for service in box.services:
        ports[service.id] = y
        for row, alias in enumerate(service.aliases):
            ports[f"{service.id}#{alias}"] = y + HEAD + ROW * (row + 0.5)
        texts += _card_texts(service)
        y += card_height(service) + PADDING
    column = min((COLUMNS[service.stage] for service in box.services), default=COLUMNS["app"])
    width = max(SHORTEST, *(text_width(text) + 36 for text in texts)) + 2 * PADDING
    return Item(f"box:{box.name}", column, band, width, y, ports=ports)


def _card_texts(service: Service) -> list[str]:
    return [
        f"{service.role} :{service.port} LAN ",
        f"{service.stage}, {shown(service.model or '')}",
        *map(shown, service.aliases),
    ]


def _outside_width(outside: Outside) -> float:
    return max(SHORTEST, text_width(shown(outside.name)) + 28, text_width(shown(outside.words)) + 28)


def _chain(edge: Edge, number: int, items: dict[str, Item], owner: Mapping[str, str]) -> tuple[Edge, tuple[str, ...]]:
    """The items of one line; where it crosses a column it gets a place of its own there."""
    source, target = items[owner[edge.source]], items[owner[edge.target]]
    left, right = sorted((source, target), key=lambda item: item.column)
    band = right.band if left.id == LAN else left.band
    used_columns = {item.column for item in items.values()}
    ways = []
    for column in range(left.column + 1, right.column):
        if column in used_columns:
            way = f"way:{number}:{column}"
            items[way] = Item(way, column, band, 0, WAY)
            ways.append(way)
    return edge, (left.id, *ways, right.id)


def _stacks(arrangement: Arrangement) -> dict[tuple[int, int], list[Item]]:
    """Items by (band, column), the columns from left to right, each ordered by what leads to it from the left."""
    before: dict[str, list[str]] = defaultdict(list)
    for _, chain in arrangement.chains:
        for left, right in pairwise(chain):
            before[right].append(left)
    stacks: dict[tuple[int, int], list[Item]] = {}
    place: dict[str, float] = {}
    for column in arrangement.columns:
        members = _ordered([item for item in arrangement.items.values() if item.column == column], before, place)
        for number, item in enumerate(members):
            place[item.id] = item.band + number / (len(members) + 1)
            stacks.setdefault((item.band, column), []).append(item)
    return stacks


def _ordered(members: Sequence[Item], before: Mapping[str, Sequence[str]], place: Mapping[str, float]) -> list[Item]:
    """The items of a column by their bands, in each by the mean place of what leads there, else as they came."""
    keys: dict[str, tuple[int, float, int]] = {}
    for number, item in enumerate(members):
        places = [place[left] for left in before.get(item.id, ()) if left in place]
        keys[item.id] = (item.band, fmean(places) if places else number, number)
    return sorted(members, key=lambda item: keys[item.id])


def _bands(stacks: Mapping[tuple[int, int], Sequence[Item]], number: int) -> list[tuple[float, float]]:
    heights = [0.0] * number
    for (band, _), stack in stacks.items():
        heights[band] = max(heights[band], _height(stack) + SLACK)
    bands, y = [], float(TOP)
    for band, height in enumerate(heights):
        bands.append((y + FRAME_HEAD, y + FRAME_HEAD + height))
        if height or band < number - 1:
            y += FRAME_HEAD + height + FRAME_PADDING + BAND_GAP
    return bands


def _height(stack: Sequence[Item]) -> float:
    return sum(item.height for item in stack) + GAP * (len(stack) - 1)


def _centre(stack: Sequence[Item], top: float, bottom: float) -> None:
    y = (top + bottom - SLACK - _height(stack)) / 2
    for item in stack:
        item.y = y
        y += item.height + GAP


def _straighten(stack: Sequence[Item], arrangement: Arrangement, top: float, bottom: float) -> None:
    """Move the items of a stack to where their lines come from, as far as they do not meet and stay in their band."""
    limit = top
    for item in stack:
        item.y = max(limit, _best_y(item, arrangement))
        limit = item.y + item.height + GAP
    limit = bottom
    for item in reversed(stack):
        item.y = min(item.y, limit - item.height)
        limit = item.y - GAP


def _best_y(item: Item, arrangement: Arrangement) -> float:
    """The height at which the lines from the left meet the item straight, on the average; its own without any."""
    heights = []
    for edge, chain in arrangement.chains:
        if item.id in chain[1:] and arrangement.items[chain[0]].column < item.column:
            left = chain[chain.index(item.id) - 1]
            port = _end_y(edge, item.id, arrangement) - item.y
            heights.append(_end_y(edge, left, arrangement) - port)
    return fmean(heights) if heights else item.y


def _end_y(edge: Edge, item: str, arrangement: Arrangement) -> float:
    """Where the line touches the item: at the card or row where it begins or ends, in the middle of where it passes."""
    if arrangement.owner[edge.source] == item:
        return port_y(arrangement, edge.source, edge.alias)
    if arrangement.owner[edge.target] == item:
        return port_y(arrangement, edge.target)
    return arrangement.items[item].y + WAY / 2


def _straighten_network(arrangement: Arrangement) -> None:
    network = arrangement.items.get(LAN)
    if network is not None:
        ends = [port_y(arrangement, edge.target) for edge, chain in arrangement.chains if chain[0] == LAN]
        network.y = fmean(ends) - HEAD / 2


# Ways of the lines: straight ones and right angles, each with a track of its own between two columns.

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
    tracks = _tracks(itertools.chain.from_iterable(pieces))
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


# Strokes of the lines: paths with round corners, arrow heads, the numbers of fallbacks.

CORNER = 7
ARROW = 8
NUMBER_AT = 19
NUMBER_STEP = 17
_WORDS = {
    "first": "first choice",
    "fallback": "when those before it fail",
    "serves": "serves",
    "uses": "uses",
    "exposed": "open to the network",
}


def strokes(drawing: Drawing, colours: Mapping[tuple[str, str], str]) -> Iterator[str]:
    """All lines; the numbers of those that meet side by side stand in two columns, not one on the other."""
    met: dict[str, list[float]] = defaultdict(list)
    for edge, points in drawing.lines:
        met[edge.target].append(points[-1][1])
    for edge, points in drawing.lines:
        odd = sorted(met[edge.target]).index(points[-1][1]) % 2
        yield _line(edge, points, colours.get((edge.source, edge.alias), "plain"), NUMBER_AT + odd * NUMBER_STEP)


def _line(edge: Edge, points: Sequence[Point], colour: str, number_at: int) -> str:
    (before, _), (x, y) = points[-2:]
    way = 1 if x > before else -1
    end = (x - way * ARROW, y)
    kind = "line fallback" if edge.line == "fallback" else "line"
    parts = [
        f"<title>{escaped(_line_words(edge))}</title>",
        f'<path class="{kind}" d="{_path([*points[:-1], end])}"/>',
        f'<path class="head" d="M{x:.1f} {y:.1f} l{-way * ARROW} -4.5 v9 z"/>',
    ]
    if edge.line == "fallback":
        parts += [
            f'<circle class="rank" cx="{x - way * number_at:.1f}" cy="{y:.1f}" r="7.5"/>',
            text(x - way * number_at, y + 4, str(edge.rank), "small", "middle"),
        ]
    return f'<g class="{colour}">{"".join(parts)}</g>'


def _line_words(edge: Edge) -> str:
    source = f"{edge.source} {edge.alias}".strip()
    return f"{source} → {edge.target.partition(':')[2] or edge.target} ({_WORDS[edge.line]})"


def _path(points: Sequence[Point]) -> str:
    """A line through the points, its right angles rounded."""
    parts = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        near, far = _towards(corner, before), _towards(corner, after)
        parts.append(f"L{near[0]:.1f} {near[1]:.1f} Q{corner[0]:.1f} {corner[1]:.1f} {far[0]:.1f} {far[1]:.1f}")
    return " ".join([*parts, f"L{points[-1][0]:.1f} {points[-1][1]:.1f}"])


def _towards(corner: Point, other: Point) -> Point:
    """A little way from the corner towards the other point, at most half of it."""
    dx, dy = other[0] - corner[0], other[1] - corner[1]
    length = abs(dx) + abs(dy)
    share = min(CORNER, length / 2) / length if length else 0
    return corner[0] + dx * share, corner[1] + dy * share
