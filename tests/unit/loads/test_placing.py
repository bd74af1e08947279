"""What of a model lies on the card, as llama.cpp places it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from provisioner.loads.layers import HeldBack, Placing, held_back, layer_count, shape_of
from provisioner.loads.terms import MIB, Load, cache_bytes, state_bytes, terms_of
from tests.unit.loads.models import NINE, mixture, mixture_tensors

ALL = sum(mixture_tensors().values())


def of(tensors: Mapping[str, int], placing: Placing) -> HeldBack:
    """Return what stays in the host's memory of a file that counts no more layers than it has tensors of."""
    return held_back(tensors, placing, layer_count(tensors))


def weights(load: Load) -> float:
    return {term.name: term.bytes for term in terms_of(load)}["weights"] / MIB


def test_tokens_are_looked_up_in_the_host_s_memory() -> None:
    assert of(mixture_tensors(), Placing()) == HeldBack(200 * MIB, 0)
    assert weights(mixture()) == ALL / MIB - 200


def test_tied_embeddings_lie_on_the_card_as_its_output() -> None:
    tied = {name: size for name, size in mixture_tensors().items() if name != "output.weight"}
    assert of(tied, Placing()).total == 0
    assert of(tied | {"per_layer_token_embd.weight": MIB}, Placing()).total == MIB


@pytest.mark.parametrize(("layers", "away"), [(1, 300), (3, 900), (4, 1200), (99, 1200)])
def test_experts_of_the_first_layers_stay_in_the_host_s_memory(layers: int, away: int) -> None:
    found = of(mixture_tensors(), Placing(cpu_experts=layers))
    assert found == HeldBack((200 + away) * MIB, 100 * MIB)
    load = mixture(placing=Placing(cpu_experts=layers))
    assert {term.name: term.bytes / MIB for term in terms_of(load)}["weights in transit"] == 100
    assert weights(load) == ALL / MIB - 200 - away
    assert cache_bytes(load) == cache_bytes(mixture())


@pytest.mark.parametrize(("layers", "away"), [(5, 0), (4, 321), (2, 963), (1, 1284), (100, 0)])
def test_a_number_of_layers_counts_from_the_last_and_the_output_as_one(layers: int, away: int) -> None:
    assert of(mixture_tensors(), Placing(layers)).total == (200 + away) * MIB
    load = mixture(placing=Placing(layers))
    on_card = 4 - min(4, away // 321)
    assert cache_bytes(load) == cache_bytes(mixture()) * on_card // 4
    assert load.is_split == (away > 0)


def test_nothing_lies_on_the_card_with_no_layers() -> None:
    assert of(mixture_tensors(), Placing(0)).total == ALL


def test_state_follows_its_layers() -> None:
    """Of the last 16 layers of 32 four attend."""
    half = replace(NINE, placing=Placing(17))
    assert (cache_bytes(half), state_bytes(half)) == (cache_bytes(NINE) // 2, state_bytes(NINE) // 2)


def test_without_a_list_of_tensors_all_weights_are_counted() -> None:
    load = Load("a", shape_of({}), 5 * MIB, 256, placing=Placing(1, 1))
    assert weights(load) == 5
