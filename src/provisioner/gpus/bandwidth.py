"""How fast the memory of known cards is, by the names that drivers give them. Pure but for reading one page.

The page is ``data/cards.yml``. Names are compared as sets of words, all of them: "RTX 4060" is no "RTX 4060 Ti".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, get_args

from provisioner.gpus.cards import Card, Vendor
from provisioner.values import paths
from provisioner.values.plain_data import yaml_value

GIB = 2**30
GB = 10**9
NEAR = 0.1
"""By which part drivers tell less memory than is sold: checking takes 1/16 of it, and they keep some for themselves."""
CHECKING = 16
"""One part of so many is set aside on cards with GDDR that check their memory: 15,360 MiB of 16 GiB on a Tesla T4."""
MOST_NEAR = 4
_FORMS = frozenset({"pcie", "sxm", "sxm2", "sxm4", "sxm5", "hbm3"})
"""Words that people leave out, as long as one card alone is meant."""
_MAKERS = frozenset({"nvidia", "geforce", "tesla", "amd", "ati", "radeon", "instinct", "intel", "corporation"})
_KINDS = frozenset({"graphics", "gpu", "generation", "with", "design", "edition", "workstation", "server"})
_EMPTY = _MAKERS | _KINDS | {"lite", "hash", "rate"}
"""Words that tell no two cards apart."""
_BRACKETS = re.compile(r"\[(.*)\]")
_ASIDE = re.compile(r"\([^)]*\)")
_SIZE = re.compile(r"\b(\d+)\s*g(?:i?b)?\b")
_SERIES = re.compile(r"\b(rtx|gtx|rx)(?=\d)")
_SUFFIX = re.compile(r"(?<=\d{4})(ti|super|xtx|xt|gre)\b")
_WORD = re.compile(r"[a-z0-9]+")

Words = frozenset[str]


@dataclass(frozen=True, slots=True)
class KnownCard:
    """A card of the page. ``memory``: bytes, as it is sold; ``speed``: bytes in a second.

    ``bits`` and ``gbps``: the width of its bus and what one line of it carries, 0 where the source does not say them;
    ``has_ecc``: whether a part of the memory is set aside for checking; ``note``: what its name and size leave open.
    """

    names: tuple[str, ...]
    vendor: Vendor
    memory: int
    speed: int
    source: str
    bits: int = 0
    gbps: float = 0.0
    has_ecc: bool = False
    note: str = ""

    @property
    def name(self) -> str:
        """As its driver says it, without the maker."""
        return self.names[0]

    @property
    def label(self) -> str:
        """Its name with its memory: "GeForce RTX 3060 12GB"."""
        size = f"{self.memory // GIB}GB"
        return self.name if size in self.name else f"{self.name} {size}"

    @property
    def card(self) -> Card:
        """As a card of a host, with the memory that its driver tells."""
        memory = self.memory - self.memory // CHECKING if self.has_ecc else self.memory
        return Card(pci="", vendor=self.vendor, name=self.name, memory=memory)


@dataclass(frozen=True, slots=True)
class MemorySpeed:
    """How fast a card's memory is at most, and the page that says so; ``name`` is the card of the table."""

    name: str
    bytes_per_s: int
    source: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Page:
    """The page as it was read: its cards, and the names that stand for numbers of the PCI bus."""

    cards: tuple[KnownCard, ...]
    numbers: Mapping[str, str]


def known_cards() -> tuple[KnownCard, ...]:
    """All cards of the page, in its order."""
    return _page().cards


def memory_speed(card: Card) -> MemorySpeed | None:
    """How fast the memory of a card is; None where its name is not known, or stands for several and its size does not.

    Where cards of one name and size differ, it is that of the fastest: as a bound it holds for all of them.
    """
    known: list[KnownCard] = []
    for product in _products(card.name):
        same = _with_words(product)
        if not same:
            return None
        known += same
    if len(known) > 1 and card.memory:
        known = _of_size(known, card.memory)
    speeds = {one.speed for one in known}
    is_undecided = len(speeds) > 1 and not card.memory
    if not known or is_undecided:
        return None
    fastest = max(known, key=lambda one: one.speed)
    return MemorySpeed(fastest.name, fastest.speed, fastest.source, fastest.note)


def is_same_card(name: str, card: Card) -> bool:
    """Whether a driver's name is that of a card, whoever told the card's own: its driver, the PCI bus or this table.

    It is not where cards of that name have memory of different speed, unless both names are the very same.
    """
    if not name or not card.name:
        return False
    if name == card.name:
        return True
    told, meant = memory_speed(replace(card, name=name, memory=0)), memory_speed(card)
    if told is None or meant is None:
        return False
    return (told.name, told.bytes_per_s) == (meant.name, meant.bytes_per_s)


def cards_called(text: str) -> tuple[KnownCard, ...]:
    """The cards that a text such as "RTX 3060" or "rtx 3060 8gb" may mean; none, one, or several to choose from."""
    found: list[KnownCard] = []
    for product in _products(text):
        found += _with_words(product) or _besides_forms(product)
    size = _SIZE.search(text.lower())
    if size is not None:
        found = [one for one in found if one.memory == int(size[1]) * GIB]
    different: dict[tuple[int, int], KnownCard] = {}
    for one in found:
        different.setdefault((one.memory, one.speed), one)
    return tuple(different.values())


def near_names(text: str) -> list[str]:
    """Labels of cards whose names have all words of that text, and more: what to say instead of "RTX 4000"."""
    wanted = words_of(text)
    labels: list[str] = []
    for words, cards in _by_words().items():
        if wanted and wanted <= words:
            labels += [one.label for one in cards]
    return labels[:MOST_NEAR]


def _of_size(cards: Iterable[KnownCard], memory: int) -> list[KnownCard]:
    """Those that have about so much memory."""
    return [card for card in cards if abs(card.memory - memory) <= NEAR * card.memory]


def _products(name: str) -> list[Words]:
    """The words of each product that a name may stand for: lists of PCI numbers name several, with strokes between."""
    brackets = _BRACKETS.search(name)
    text = brackets[1] if brackets is not None else name
    for word in text.split():
        text = _page().numbers.get(word, text)
    if "mobile" in text.lower():  # "GeForce RTX 4070 Max-Q / Mobile": its driver calls either the laptop's
        return [words_of(text) - {"max", "q", "mobile"} | {"laptop"}]
    first, *others = text.split("/")
    series = re.split(r"\d", first, maxsplit=1)[0]
    products = [words_of(first)]
    for other in others:
        is_short = other.strip()[:1].isdigit()
        products.append(words_of(series + other if is_short else other))
    return products


def words_of(name: str) -> Words:
    """The words by which a name differs from that of another card; its memory and its maker are left out."""
    text = _ASIDE.sub(" ", name.lower())
    text = _SIZE.sub(" ", text)
    text = _SERIES.sub(r"\1 ", text)
    text = _SUFFIX.sub(r" \1", text)
    return frozenset(_WORD.findall(text)) - _EMPTY


def _with_words(words: Words) -> Sequence[KnownCard]:
    return _by_words().get(words, ())


def _besides_forms(words: Words) -> list[KnownCard]:
    """The cards that have these words, and none besides but how they are plugged in."""
    found: list[KnownCard] = []
    for known, cards in _by_words().items():
        if words and known - _FORMS == words:
            found += cards
    return found


@cache
def _by_words() -> Mapping[Words, Sequence[KnownCard]]:
    cards: dict[Words, list[KnownCard]] = {}
    for card in known_cards():
        for words in {words_of(name) for name in card.names}:
            cards.setdefault(words, []).append(card)
    return cards


@cache
def _page() -> _Page:
    page = yaml_value((paths.data() / "cards.yml").read_text(encoding="utf-8"))
    cards: list[KnownCard] = []
    for vendor in get_args(Vendor):
        cards.extend(_known(vendor, entry) for entry in page["cards"][vendor])
    return _Page(tuple(cards), page["numbers"])


def _known(vendor: Vendor, entry: Mapping[str, Any]) -> KnownCard:
    return KnownCard(
        names=(entry["name"], *entry.get("also", ())),
        vendor=vendor,
        memory=entry["memory"] * GIB,
        speed=round(entry["gb_s"] * GB),
        source=entry["source"],
        bits=entry.get("bits", 0),
        gbps=entry.get("gbps", 0.0),
        has_ecc=entry.get("ecc", False),
        note=entry.get("note", ""),
    )
