"""What a server that speaks takes of a card."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.speech_memory import rows_of
from provisioner.gpus.cards import Card
from provisioner.loads.advice import advice_on, contexts, refusals
from provisioner.loads.budgets import Budget, budgets
from provisioner.loads.terms import MIB, largest_context
from provisioner.services import knowledge_of
from provisioner.services.kokoro import MARGIN, WEIGHTS, activation_bytes, loads_of
from provisioner.values.address import Address
from tests.unit.lab.test_cards import AMD, NVIDIA
from tests.unit.services.test_kokoro import lab, resolved

ADDRESS = Address.of("voice", "kokoro")
PARAMETERS = 81_810_022
"""Of the real library's model, as Molecule's scenario prints them."""
COUNTED = {512: 477_373_928, 1024: 718_956_008, 1536: 960_538_088, 2048: 1_202_120_168}
"""Frames of 510 symbols, and the most bytes that lived beside the weights, as the benchmark printed them."""


def on(card: Card) -> Budget:
    """The card with the service on it."""
    (budget,) = budgets([loads_of(ADDRESS)], {"voice": card})
    return budget


def test_its_weights_are_numbers_of_four_bytes() -> None:
    assert 4 * PARAMETERS <= WEIGHTS < 4 * PARAMETERS + MIB


@pytest.mark.parametrize("frames", COUNTED)
def test_activations_are_those_that_the_real_library_has(frames: int) -> None:
    assert activation_bytes(frames) == COUNTED[frames]


def test_the_terms_of_the_longest_text_are_added_up() -> None:
    budget = on(replace(NVIDIA, memory=4 * 2**30))
    assert [(term.name, term.bytes) for term in budget.added.terms] == [
        ("weights", WEIGHTS),
        ("compute buffers", activation_bytes(1530)),
        ("workspaces", MARGIN),
    ]
    assert (budget.missing, budget.unknown, advice_on(budget)) == (0, (), ())
    assert all("measured on no card" in guess or "lower `speed`" in guess for guess in budget.engines[0].unread)


def test_it_has_no_context_to_choose() -> None:
    budget = on(NVIDIA)
    (load,) = budget.loads
    assert list(contexts(budget)) == []
    assert largest_context(load, 2**40) == 0


def test_where_it_does_not_fit_the_cpu_may_speak() -> None:
    budget = on(replace(NVIDIA, memory=2 * 2**30))
    (refusal,) = refusals([budget])
    assert refusal.resolution.startswith("Write device: cpu (voice/kokoro: all of it on the CPU)")


@pytest.mark.parametrize(
    ("options", "cards", "lies_there"),
    [
        ({"gpu": "any"}, {"voice": NVIDIA}, True),
        ({"gpu": "any"}, {}, True),
        ({"gpu": "any"}, {"voice": AMD}, False),
        ({"gpu": "any", "device": "cpu"}, {"voice": NVIDIA}, False),
        ({}, {}, False),
    ],
)
def test_only_what_computes_on_a_card_of_nvidia_takes_any_of_it(
    options: dict[str, Any], cards: dict[str, Card], lies_there: bool
) -> None:
    service = resolved(lab(**options), cards).services[ADDRESS]
    loads = knowledge_of("kokoro").loads(service, {}, 0)
    assert (loads is not None) == lies_there
    assert loads is None or not loads.unknown


def test_the_benchmark_sets_what_it_counts_beside_what_is_reckoned() -> None:
    counted = {"weights": WEIGHTS, "symbols": 510, "frames": 512, "peak": COUNTED[512] * 2}
    rows = rows_of([counted, {**counted, "frames": 1024}])
    assert [row.unit for row in rows] == ["MiB", "x", "MiB", "x", "MiB", "x"]
    assert [row.median for row in rows if row.unit == "x"][:2] == [1, 2]
    assert re.search(r"510 symbols, 1024 frames", rows[-1].what)
