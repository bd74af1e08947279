"""Where everything of a drawing stands: columns from left to right by what asks whom, a band for each host."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean

from provisioner.report.graph.topology import LAN, Box, Edge, Graph, Outside, Service
from provisioner.report.style import safe_line

HEAD = 44
"""Height of a service's card without its aliases, of a model and of an upstream."""
ROW = 22
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
LETTER = 8.0
SHORTEST = 150
LONGEST = 34
"""So many letters of a text are shown."""
COLUMNS = {"lan": 0, "app": 1, "gateway": 2, "engine": 3, "upstream": 3, "model": 4}


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
        return sorted({one.column for one in self.items.values()})


def shown(text: str) -> str:
    """``text`` on one line, what cannot be seen written out, shortened where it would make the drawing too wide."""
    safe = safe_line(text)
    return safe if len(safe) <= LONGEST else safe[: LONGEST - 1] + "…"


def text_width(text: str) -> float:
    """How wide a text is at most, in any font that a reader may have."""
    return LETTER * sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)


def card_height(service: Service) -> float:
    """The height of a service's card, with a row for each alias."""
    return HEAD + ROW * len(service.aliases) + (6 if service.aliases else 0)


def arrange(graph: Graph) -> Arrangement:
    """Give every item its column, its band and its height on the page."""
    items = {one.id: one for one in _items(graph)}
    owner = {name: one.id for one in items.values() for name in (one.id, *one.ports)}
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


def port_y(arrangement: Arrangement, end: str, alias: str = "") -> float:
    """Where a line leaves or meets the middle of an end's card, or of the row of one of its aliases."""
    item = arrangement.items[arrangement.owner[end]]
    rows = item.ports.get(f"{end}#{alias}")
    return item.y + (item.ports.get(end, item.height / 2 - HEAD / 2) + HEAD / 2 if rows is None else rows)


def _items(graph: Graph) -> list[Item]:
    bands = {host.name: number for number, host in enumerate(graph.hosts)}
    items = [_box_item(box, bands[box.host]) for box in graph.boxes]
    by_service = {name: one for one in items for name in one.ports}
    for one in graph.outside:
        users = [by_service[edge.source].band for edge in graph.edges if edge.target == one.id]
        band = min(users, default=0) if one.kind == "model" else len(graph.hosts)
        items.append(Item(one.id, COLUMNS[one.kind], band, _outside_width(one), HEAD))
    exposed = [by_service[edge.target].band for edge in graph.edges if edge.source == LAN]
    if exposed:
        items.append(Item(LAN, COLUMNS[LAN], min(exposed), 96, HEAD))
    return items


def _box_item(box: Box, band: int) -> Item:
    ports, y = {}, float(BOX_HEAD)
    for one in box.services:
        ports[one.id] = y
        ports |= {f"{one.id}#{alias}": y + HEAD + ROW * (row + 0.5) for row, alias in enumerate(one.aliases)}
        y += card_height(one) + PADDING
    column = min((COLUMNS[one.stage] for one in box.services), default=COLUMNS["app"])
    texts = [shown(box.name) + shown(box.gpu), *(text for one in box.services for text in _card_texts(one))]
    width = max(SHORTEST, *(text_width(text) + 36 for text in texts)) + 2 * PADDING
    return Item(f"box:{box.name}", column, band, width, y, ports=ports)


def _card_texts(service: Service) -> list[str]:
    return [
        f"{service.role} :{service.port} LAN ",
        f"{service.stage}, {shown(service.model or '')}",
        *map(shown, service.aliases),
    ]


def _outside_width(one: Outside) -> float:
    return max(SHORTEST, text_width(shown(one.name)) + 28, text_width(shown(one.words)) + 28)


def _chain(edge: Edge, number: int, items: dict[str, Item], owner: Mapping[str, str]) -> tuple[Edge, tuple[str, ...]]:
    """The items of one line; where it crosses a column it gets a place of its own there."""
    source, target = items[owner[edge.source]], items[owner[edge.target]]
    left, right = sorted((source, target), key=lambda one: one.column)
    band = right.band if left.id == LAN else left.band
    ways = []
    for column in range(left.column + 1, right.column):
        if any(one.column == column for one in items.values()):
            ways.append(f"way:{number}:{column}")
            items[ways[-1]] = Item(ways[-1], column, band, 0, WAY)
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
        members = [one for one in arrangement.items.values() if one.column == column]
        first = {one.id: number for number, one in enumerate(members)}
        wish = {one.id: [place[left] for left in before[one.id] if left in place] for one in members}
        members.sort(key=lambda one: (one.band, fmean(wish[one.id]) if wish[one.id] else first[one.id], first[one.id]))
        place |= {one.id: one.band + number / (len(members) + 1) for number, one in enumerate(members)}
        for one in members:
            stacks.setdefault((one.band, column), []).append(one)
    return stacks


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
    return sum(one.height for one in stack) + GAP * (len(stack) - 1)


def _centre(stack: Sequence[Item], top: float, bottom: float) -> None:
    y = (top + bottom - SLACK - _height(stack)) / 2
    for one in stack:
        one.y = y
        y += one.height + GAP


def _straighten(stack: Sequence[Item], arrangement: Arrangement, top: float, bottom: float) -> None:
    """Move the items of a stack to where their lines come from, as far as they do not meet and stay in their band."""
    limit = top
    for one in stack:
        one.y = limit = max(limit, one.y if (wish := _wish(one, arrangement)) is None else wish)
        limit += one.height + GAP
    limit = bottom
    for one in reversed(stack):
        one.y = min(one.y, limit - one.height)
        limit = one.y - GAP


def _wish(item: Item, arrangement: Arrangement) -> float | None:
    wishes = []
    for edge, chain in arrangement.chains:
        if item.id in chain[1:] and arrangement.items[chain[0]].column < item.column:
            left = chain[chain.index(item.id) - 1]
            begin = _end_y(edge, left, arrangement)
            wishes.append(begin - (_end_y(edge, item.id, arrangement) - item.y))
    return fmean(wishes) if wishes else None


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
