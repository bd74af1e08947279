"""How fast the memory of known cards is: the page itself, and names that must not be mixed up."""

from __future__ import annotations

import pytest

from provisioner.gpus.bandwidth import (
    GB,
    GIB,
    KnownCard,
    cards_called,
    is_same_card,
    known_cards,
    memory_speed,
    near_names,
    words_of,
)
from provisioner.gpus.cards import Card
from tests.case_files import read_cases

CASES = read_cases("gpus/bandwidth")

MIB = 2**20
CARDS = known_cards()


def speed_of(name: str, memory_mib: int) -> float | None:
    """GB/s of the card that a driver calls so."""
    found = memory_speed(Card("0000:01:00.0", "nvidia", name, memory=memory_mib * MIB))
    return None if found is None else found.bytes_per_s / GB


def test_the_page_has_the_cards_that_people_have() -> None:
    assert len(CARDS) > 150
    assert {card.vendor for card in CARDS} == {"nvidia", "amd", "intel"}
    assert len({(words_of(card.name), card.memory) for card in CARDS}) == len(CARDS), "one is there twice"


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.label)
def test_each_card_has_a_source_and_agrees_with_the_width_of_its_bus(card: KnownCard) -> None:
    assert card.source.startswith("https://")
    assert GIB <= card.memory <= 512 * GIB
    assert 50 * GB < card.speed < 10_000 * GB
    if card.bits and card.gbps:
        assert card.speed == pytest.approx(card.bits * card.gbps * GB / 8, rel=0.02)


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.label)
def test_each_card_is_found_by_its_own_name(card: KnownCard) -> None:
    for name in card.names:
        found = memory_speed(Card("", card.vendor, name, memory=card.card.memory))
        assert found is not None
        assert (found.bytes_per_s, found.source) == (card.speed, card.source)
    assert [(one.memory, one.speed) for one in cards_called(card.label)] == [(card.memory, card.speed)]


@pytest.mark.parametrize(("name", "memory", "wanted"), CASES["a name of a driver stands for one card"])
def test_a_name_of_a_driver_stands_for_one_card(name: str, memory: int, wanted: float) -> None:
    assert speed_of(name, memory) == wanted


@pytest.mark.parametrize(("name", "memory"), CASES["what is not known stays unknown"])
def test_what_is_not_known_stays_unknown(name: str, memory: int) -> None:
    assert speed_of(name, memory) is None


def test_without_its_memory_a_card_is_known_where_all_of_its_name_are_as_fast() -> None:
    assert speed_of("NVIDIA GeForce RTX 4060 Ti", 0) == 288
    assert speed_of("NVIDIA GeForce RTX 4090", 49_140) == 1008.4, "with twice the memory, on the same bus"


@pytest.mark.parametrize(("text", "labels"), CASES["a card is called by its name"])
def test_a_card_is_called_by_its_name(text: str, labels: list[str]) -> None:
    assert [card.label for card in cards_called(text)] == labels


def test_a_name_that_says_too_little_has_neighbours() -> None:
    assert near_names("RTX 4000") == [
        "Quadro RTX 4000 8GB",
        "RTX 4000 Ada Generation 20GB",
        "RTX 4000 SFF Ada Generation 20GB",
        "RTX PRO 4000 Blackwell 24GB",
    ]
    assert near_names("RTX 3060 6GB")[:2] == ["GeForce RTX 3060 12GB", "GeForce RTX 3060 8GB"]
    assert near_names("") == near_names("8GB") == near_names("none") == []


def test_what_checks_its_memory_has_less_of_it() -> None:
    (tesla,) = cards_called("Tesla T4")
    assert tesla.card.memory == 15_360 * MIB
    (plain,) = cards_called("RTX 4060")
    assert plain.card.memory == 8_192 * MIB


@pytest.mark.parametrize(
    ("name", "card", "is_same"),
    [
        ("NVIDIA GeForce RTX 4060", Card("", "nvidia", "GeForce RTX 4060", memory=8 * GIB), True),
        ("NVIDIA GeForce RTX 4060", Card("", "nvidia", "AD107 [GeForce RTX 4060]", memory=8 * GIB), True),
        ("NVIDIA GeForce RTX 4060", Card("", "nvidia", "GeForce RTX 4060 Ti", memory=8 * GIB), False),
        ("NVIDIA GeForce RTX 4060", Card("", "nvidia", "", memory=8 * GIB), False),
        ("", Card("", "nvidia", "GeForce RTX 4060", memory=8 * GIB), False),
        ("", Card("", "nvidia", ""), False),
        ("NVIDIA GeForce RTX 3060", Card("", "nvidia", "GeForce RTX 3060", memory=8 * GIB), False),
        ("NVIDIA GeForce RTX 3060", Card("", "nvidia", "NVIDIA GeForce RTX 3060", memory=12 * GIB), True),
        ("Some Card", Card("", "nvidia", "Some Card"), True),
        ("Some Card", Card("", "nvidia", "Other Card"), False),
    ],
)
def test_what_was_measured_is_of_a_card_whose_name_is_the_same(name: str, card: Card, is_same: bool) -> None:
    """An RTX 3060 of 8 GB is read more slowly than one of 12 GB, and its name does not say which it is."""
    assert is_same_card(name, card) == is_same
