"""What an Ollama server's models need on a card, and what nobody knows of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from provisioner.catalog import load_catalog
from provisioner.lab import resolve
from provisioner.loads.advice import advice_on
from provisioner.loads.budgets import budgets
from provisioner.loads.engines import EngineLoads
from provisioner.loads.layers import shape_of
from provisioner.loads.refusals import refusals
from provisioner.loads.terms import MIB, Load, cache_bytes
from provisioner.models.header import Header
from provisioner.services import knowledge_of
from provisioner.services.ollama.loads import KEPT_FREE, own_context
from provisioner.values import paths
from tests.unit.lab.test_cards import NVIDIA
from tests.unit.loads.models import LLAMA, QWEN
from tests.unit.services.test_ollama import ADDRESS, SMALL, lab, parsed

GIB = 2**30
HEADS = {
    "llama": Header("llama", values=LLAMA, tokens=32_000, tensors={"blk.31.x.weight": 4096 * MIB}),
    "hybrid": Header("qwen35", values={**QWEN, "qwen35.vocab_size": 248_320}, tensors={"blk.31.x": 5491 * MIB}),
}
SIZES = {name: sum(header.tensors.values()) for name, header in HEADS.items()}


def loads(names: tuple[str, ...] = ("llama",), memory: int = 0, contexts: Any = None, **options: Any) -> EngineLoads:
    """What a server of these models needs on a card."""
    content = lab(names, **options)
    content["containers"]["amd"]["gpu"] = "any"
    for name, context in (contexts or {}).items():
        content["models"][name]["context"] = context
    service = resolve(parsed(content), load_catalog()).services[ADDRESS]
    headers = {name: HEADS[name] for name in names if name in HEADS}
    found = knowledge_of("ollama").loads(replace(service, headers=headers), SIZES, memory)
    assert found is not None
    return found


def only(**options: Any) -> Load:
    """The one load of a server of one model."""
    (load,) = loads(**options).loads
    return load


def test_without_a_card_nothing_of_it_lies_on_one() -> None:
    service = resolve(parsed(lab()), load_catalog()).services[ADDRESS]
    assert knowledge_of("ollama").loads(service, {}, 0) is None


def test_a_model_is_what_llama_cpp_makes_of_its_file() -> None:
    load = only(context=4096)
    assert load.shape == shape_of(LLAMA, 32_000)
    assert (load.weights, load.context, load.slots, load.unified) == (4096 * MIB, 4096, 1, False)
    assert cache_bytes(load) == 32 * 2 * 8 * 128 * 2 * 4096
    assert loads(context=4096).unknown == ""


def test_each_request_has_a_context_of_its_own_and_the_cache_its_type() -> None:
    load = only(context=4096, num_parallel=3, kv_cache_type="q8_0")
    assert (load.context, load.slots, load.keys, load.values) == (3 * 4096, 3, "q8_0", "q8_0")


def test_architectures_that_compute_one_request_at_a_time_have_one_cache() -> None:
    load = only(names=("hybrid",), context=4096, num_parallel=3)
    assert (load.context, load.slots) == (4096, 1)


def test_the_context_of_a_model_counts_before_that_of_the_server_and_no_more_than_it_was_made_for() -> None:
    assert only(context=4096, contexts={"llama": 2048}).context == 2048
    assert only(context=1_000_000).context == 8192


@pytest.mark.parametrize(
    ("memory", "context"),
    [(0, 4096), (23 * GIB - 1, 4096), (23 * GIB, 32_768), (47 * GIB - 1, 32_768), (47 * GIB, 262_144)],
)
def test_without_a_context_ollama_takes_one_by_the_cards_memory(memory: int, context: int) -> None:
    assert own_context(memory) == context
    found = loads(names=("hybrid",), memory=memory)
    assert found.loads[0].context == context
    assert any("which is not known" in guess for guess in found.unread) == (memory == 0)


@pytest.mark.parametrize(
    ("context", "memory", "batch"),
    [
        (4096, 80 * GIB, 512),
        (8192, 80 * GIB, 1024),
        (65_536, 80 * GIB, 2048),
        (65_536, 12 * GIB, 512),  # 13.5 GiB of weights and cache, as Ollama reckons it
        (65_536, 24 * GIB, 2048),  # 56 %
        (65_536, 20 * GIB, 1024),  # 68 %
        (65_536, 0, 2048),
    ],
)
def test_how_many_tokens_are_computed_at_once_follows_context_and_memory(context: int, memory: int, batch: int) -> None:
    assert only(names=("hybrid",), context=context, memory=memory).ubatch == batch


@pytest.mark.parametrize(("context", "memory", "batch"), [(4096, 0, 512), (8192, 8 * GIB, 256), (8192, 9 * GIB, 512)])
def test_without_flash_attention_fewer_are_computed_at_once(context: int, memory: int, batch: int) -> None:
    found = loads(context=context, memory=memory, flash_attention="off")
    assert found.loads[0].ubatch == batch
    assert "llama: what attention takes without flash attention is not counted" in found.unread, (
        "its widths are not told"
    )
    assert not found.loads[0].flash_attention
    assert loads(context=context, memory=memory).loads[0].flash_attention


def test_as_many_of_the_largest_count_as_may_be_loaded() -> None:
    names = ("llama", "hybrid")
    assert [load.name for load in loads(names, context=4096).loads] == ["hybrid"]
    both = loads(names, context=4096, max_loaded_models=2).loads
    assert [load.name for load in both] == ["hybrid", "llama"]
    assert [load.kept_free for load in both] == [KEPT_FREE, 0]


@pytest.mark.parametrize(
    ("options", "free"),
    [
        ({}, 1024 * MIB),
        ({"partial_offload": True}, 0),
        ({"environment": {"LLAMA_ARG_FIT_TARGET": "256"}}, 256 * MIB),
        ({"environment": {"LLAMA_ARG_FIT_TARGET": "much"}}, 1024 * MIB),
        ({"environment": {"LLAMA_ARG_FIT": "off"}}, 0),
    ],
)
def test_what_llama_cpp_keeps_free_is_part_of_the_sum(options: dict[str, Any], free: int) -> None:
    assert only(context=4096, **options).kept_free == free


def test_what_it_fetches_by_itself_is_unknown_and_named() -> None:
    found = loads(context=4096, pull=[SMALL])
    assert [load.name for load in found.loads] == ["llama"]
    assert found.unknown.startswith("it fetches small by itself: its registry alone knows how large that is")
    alone = loads((), pull=[SMALL])
    assert (alone.loads, bool(alone.unknown)) == ((), True)


def test_a_model_of_which_nothing_was_read_is_guessed() -> None:
    found = loads(("other",), context=4096)
    assert found.unread[0].startswith("other: nothing is known of it; 36% of its weights")
    assert "other: nobody tells how large its file is, so its weights are missing in the sum" in found.unread


def test_what_does_not_fit_is_refused_with_options_that_ollama_has() -> None:
    found = loads(("llama", "hybrid"), context=8192, max_loaded_models=2, num_parallel=2)
    card = replace(NVIDIA, memory=10 * GIB)
    (budget,) = budgets([found], {"amd": card})
    (refusal,) = refusals([budget])
    assert refusal.resolution.startswith("Write max_loaded_models: 1 (amd/ollama: one model in memory at a time")
    written = [advice.write for advice in advice_on(budget)]
    assert written == [
        "max_loaded_models: 1",
        "num_parallel: 1",
        "kv_cache_type: q8_0",
        "kv_cache_type: q8_0, context: 4096",
        "",
    ]
    options = yaml.safe_load((paths.roles() / "ollama/meta/argument_specs.yml").read_text(encoding="utf-8"))
    names = options["argument_specs"]["main"]["options"]
    for write in filter(None, written):
        assert {f"ollama_{part.split(':')[0]}" for part in write.split(", ")} <= names.keys()


def test_what_fits_needs_no_advice() -> None:
    (budget,) = budgets([loads(context=4096)], {"amd": replace(NVIDIA, memory=24 * GIB)})
    assert (budget.missing, advice_on(budget)) == (0, ())
