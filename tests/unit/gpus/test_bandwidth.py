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


@pytest.mark.parametrize(
    ("name", "memory", "wanted"),
    [
        ("NVIDIA GeForce RTX 4060", 8188, 272),
        ("NVIDIA GeForce RTX 4060 Ti", 8188, 288),
        ("NVIDIA GeForce RTX 4060 Ti", 16380, 288),
        ("NVIDIA GeForce RTX 4060 Laptop GPU", 8188, 256),
        ("NVIDIA GeForce RTX 3080", 10240, 760.3),
        ("NVIDIA GeForce RTX 3080", 12288, 912.4),
        ("NVIDIA GeForce RTX 3080 Ti", 12288, 912.4),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", 16384, 448),
        ("NVIDIA GeForce RTX 3060", 12288, 360),
        ("NVIDIA GeForce RTX 3060", 8192, 240),
        ("NVIDIA GeForce RTX 3060 Laptop GPU", 6144, 336),
        ("NVIDIA GeForce RTX 3050", 8192, 224),
        ("NVIDIA GeForce RTX 3050", 6144, 168),
        ("NVIDIA GeForce RTX 3050 6GB Laptop GPU", 6144, 168),
        ("NVIDIA GeForce RTX 4070", 12282, 504.2),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", 16376, 672.3),
        ("NVIDIA GeForce RTX 4070 Laptop GPU", 8188, 256),
        ("NVIDIA GeForce GTX 1060 3GB", 3072, 192.2),
        ("NVIDIA GeForce GTX 1060 6GB", 6144, 216.7),
        ("NVIDIA GeForce RTX 2070 with Max-Q Design", 8192, 384),
        ("GeForce RTX 2070", 8192, 448),
        ("NVIDIA GeForce RTX 5090", 32607, 1792),
        ("NVIDIA A10", 23028, 600.2),
        ("NVIDIA A100-SXM4-40GB", 40960, 1555.2),
        ("NVIDIA A100-SXM4-80GB", 81920, 2039),
        ("NVIDIA A100 80GB PCIe", 81920, 1935.4),
        ("NVIDIA H100 80GB HBM3", 81559, 3361.3),
        ("NVIDIA H100 PCIe", 81559, 2039),
        ("NVIDIA H100 NVL", 95830, 3940.5),
        ("NVIDIA H200", 143771, 4800),
        ("NVIDIA L4", 23034, 300.1),
        ("NVIDIA L40S", 46068, 864),
        ("Tesla T4", 15360, 320),
        ("Tesla V100-SXM2-32GB", 32768, 898),
        ("NVIDIA RTX A4000", 16376, 448),
        ("Quadro RTX 4000", 8192, 416),
        ("NVIDIA RTX 4000 Ada Generation", 20475, 360),
        ("NVIDIA RTX 4000 SFF Ada Generation", 20475, 280),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 97887, 1792),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, 1792),
        ("GA104 [GeForce RTX 3070]", 8192, 448),
        ("GA106 [GeForce RTX 3060 Lite Hash Rate]", 12288, 360),
        ("AD106M [GeForce RTX 4070 Max-Q / Mobile]", 8188, 256),
        ("Navi 31 [Radeon RX 7900 XT/7900 XTX]", 20464, 800),
        ("AMD 0x744c", 24560, 960),
        ("AMD 0x73df", 12272, 432),
        ("AMD Radeon RX 6600 (RADV NAVI23)", 8176, 224),
        ("Intel(R) Arc(TM) A770 Graphics", 16225, 560),
    ],
)
def test_a_name_of_a_driver_stands_for_one_card(name: str, memory: int, wanted: float) -> None:
    assert speed_of(name, memory) == wanted


@pytest.mark.parametrize(
    ("name", "memory"),
    [
        ("", 8192),
        ("NVIDIA", 8192),
        ("AMD Radeon 780M", 2048),
        ("AMD 0x744c", 16368),
        ("AMD 0x1234", 8192),
        ("NVIDIA A10G", 23028),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4864),
        ("NVIDIA GeForce RTX 3060", 6144),
        ("NVIDIA GeForce RTX 3060", 0),
        ("NVIDIA GeForce RTX 2070 SUPER Laptop GPU", 8192),
        ("Navi 33 [Radeon RX 7600/7690]", 8192),
    ],
)
def test_what_is_not_known_stays_unknown(name: str, memory: int) -> None:
    assert speed_of(name, memory) is None


def test_without_its_memory_a_card_is_known_where_all_of_its_name_are_as_fast() -> None:
    assert speed_of("NVIDIA GeForce RTX 4060 Ti", 0) == 288
    assert speed_of("NVIDIA GeForce RTX 4090", 49_140) == 1008.4, "with twice the memory, on the same bus"


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("RTX 3060", ["GeForce RTX 3060 12GB", "GeForce RTX 3060 8GB"]),
        ("rtx 3060 8gb", ["GeForce RTX 3060 8GB"]),
        ("RTX3060Ti", ["GeForce RTX 3060 Ti 8GB"]),
        ("NVIDIA GeForce RTX 4060", ["GeForce RTX 4060 8GB"]),
        ("rx7900xtx", ["Radeon RX 7900 XTX 24GB"]),
        ("A100", ["A100-PCIE-40GB", "A100 80GB PCIe", "A100-SXM4-80GB"]),
        ("A100 40 GB", ["A100-PCIE-40GB"]),
        ("H100", ["H100 PCIe 80GB", "H100 80GB HBM3"]),
        ("RTX 3060 6GB", []),
        ("RTX 4000", []),
        ("8GB", []),
        ("", []),
    ],
)
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
