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
LETTER = 8.0
SHORTEST = 150
LONGEST = 34
"""So many letters of a text are shown."""
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


def shown(text: str) -> str:
    """``text`` on one line, what cannot be seen written out, shortened where it would make the drawing too wide."""
    safe = safe_line(text)
    if len(safe) <= LONGEST:
        return safe
    return safe[: LONGEST - 1] + "…"


def text_width(text: str) -> float:
    """How wide a text is at most, in any font that a reader may have."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return LETTER * (len(text) + wide)


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
