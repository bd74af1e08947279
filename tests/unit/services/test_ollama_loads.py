"""What an Ollama server's models need on a card, and what nobody knows of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml

from provisioner.catalog import load_catalog
from provisioner.gpus.cards import Card
from provisioner.lab import Known, resolve
from provisioner.lab.rules import card_problems, warnings
from provisioner.loads.advice import advice_on, refusals
from provisioner.loads.budgets import budgets
from provisioner.loads.engines import EngineLoads
from provisioner.loads.layers import shape_of
from provisioner.loads.terms import MIB, Load, cache_bytes, image_buffer
from provisioner.models.header import Header
from provisioner.models.pulled import Pulled
from provisioner.services import knowledge_of
from provisioner.services.ollama.loads import KEPT_FREE, own_context
from provisioner.values import paths
from tests.lab_files import spec_of
from tests.unit.lab.test_cards import AMD, NVIDIA
from tests.unit.loads.models import LLAMA, QWEN
from tests.unit.services.test_ollama import ADDRESS, SMALL, lab

GIB = 2**30
HEADS = {
    "llama": Header("llama", values=LLAMA, tokens=32_000, tensors={"blk.31.x.weight": 4096 * MIB}),
    "hybrid": Header("qwen35", values={**QWEN, "qwen35.vocab_size": 248_320}, tensors={"blk.31.x": 5491 * MIB}),
}
NOTHING_PULLED: Mapping[str, Pulled] = {}
EYE = {
    "clip.projector_type": "mlp",
    "clip.vision.image_size": 336,
    "clip.vision.patch_size": 14,
    "clip.vision.embedding_length": 1024,
    "clip.vision.feed_forward_length": 4096,
}
SIZES = {name: sum(header.tensors.values()) for name, header in HEADS.items()}


def loads(
    names: tuple[str, ...] = ("llama",),
    memory: int = 0,
    contexts: Any = None,
    pulled: Mapping[str, Pulled] = NOTHING_PULLED,
    **options: Any,
) -> EngineLoads:
    """What a server of these models needs on a card; ``pulled``: what registries say of those that it fetches."""
    content = lab(names, **options)
    content["containers"]["amd"]["gpu"] = "any"
    for name, context in (contexts or {}).items():
        content["models"][name]["context"] = context
    service = resolve(spec_of(content), load_catalog()).services[ADDRESS]
    headers = {name: HEADS[name] for name in names if name in HEADS}
    found = knowledge_of("ollama").loads(replace(service, headers=headers, pulled=pulled), SIZES, memory)
    assert found is not None
    return found


def only(**options: Any) -> Load:
    """The one load of a server of one model."""
    (load,) = loads(**options).loads
    return load


def test_without_a_card_nothing_of_it_lies_on_one() -> None:
    service = resolve(spec_of(lab()), load_catalog()).services[ADDRESS]
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
    assert found.unknown == "llama: its file does not tell what attention takes without flash attention"
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


def fetched(name: str = "llama", **said: Any) -> Pulled:
    """One of the models above as a registry has it."""
    header = HEADS[name]
    return replace(Pulled("d" * 64, header, SIZES[name], family=header.architecture, parts=("model",)), **said)


def small(pulled: Pulled, **options: Any) -> Load:
    """The one load of a server that fetches its one model."""
    found = loads((), pulled={"small": pulled}, pull=[SMALL], **options)
    assert found.unknown == ""
    (load,) = found.loads
    return load


def test_what_it_fetches_is_unknown_and_named_where_nobody_asked_its_registry() -> None:
    found = loads(context=4096, pull=[SMALL])
    assert [load.name for load in found.loads] == ["llama"]
    assert found.unknown == "what small takes, which it fetches by itself, is not known: its registry was not asked"
    alone = loads((), pull=[SMALL])
    assert (alone.loads, bool(alone.unknown)) == ((), True)


def test_a_fetched_model_is_added_up_as_one_of_the_file_is() -> None:
    assert replace(small(fetched(), context=4096), name="llama") == only(context=4096)
    both = loads(("hybrid",), pulled={"small": fetched()}, pull=[SMALL], context=4096, max_loaded_models=2)
    assert [load.name for load in both.loads] == ["hybrid", "small"]
    assert both.unknown == ""
    assert both.ways is not None
    assert both.ways[0].write == "max_loaded_models: 1"


@pytest.mark.parametrize(
    ("numbers", "options", "context"),
    [
        ({}, {"context": 2048}, 2048),
        ({"num_ctx": 1024}, {"context": 2048}, 1024),
        ({"num_ctx": 4096}, {"context": 2048, "num_parallel": 2}, 8192),
        ({"num_ctx": 1}, {}, 4),
        ({"num_ctx": 1_000_000}, {}, 8192),
        ({}, {"memory": 24 * GIB}, 8192),
    ],
)
def test_the_context_that_comes_with_a_model_counts_before_that_of_the_server(
    numbers: dict[str, int], options: dict[str, Any], context: int
) -> None:
    assert small(fetched(numbers=numbers), **options).context == context


@pytest.mark.parametrize(("said", "batch"), [(1536, 1536), (64, 64), (0, 512)])
def test_the_batch_that_comes_with_a_model_counts(said: int, batch: int) -> None:
    assert small(fetched(numbers={"num_batch": said}), context=65_536, memory=80 * GIB).ubatch == batch


def test_the_family_that_its_registry_names_says_whether_requests_are_computed_one_by_one() -> None:
    assert small(fetched(family="qwen3vl"), context=4096, num_parallel=3).slots == 1
    assert small(fetched(family="llama"), context=4096, num_parallel=3).slots == 3
    assert small(fetched("hybrid", family=""), context=4096, num_parallel=3).slots == 1


def test_an_encoder_of_images_beside_the_model_is_counted_and_its_buffers_lie_in_what_is_left_free() -> None:
    eye = fetched(projector=Header("clip", values=EYE), projector_size=600 * MIB, parts=("model", "projector"))
    load = small(eye, context=1024)
    assert (load.encoder, load.image_buffer) == (600 * MIB, image_buffer(EYE))
    assert load.context == 2048
    assert load.kept_free == KEPT_FREE - load.image_buffer
    assert small(eye, environment={"LLAMA_ARG_FIT_TARGET": "256"}).kept_free == 0
    free = small(eye, environment={"LLAMA_ARG_FIT_TARGET": "2048"})
    assert free.kept_free == 2048 * MIB - free.encoder - free.image_buffer


def test_how_large_images_may_be_is_guessed_where_no_file_says_it() -> None:
    eye = fetched(projector=Header("clip"), projector_size=600 * MIB)
    found = loads((), pulled={"small": eye}, pull=[SMALL], context=4096)
    assert found.loads[0].image_buffer == 500 * MIB
    assert "small: how large images may be is not known; 500 MiB stand for the buffers of one" in found.unread


@pytest.mark.parametrize(("architecture", "encoder"), [("gemma3", 300 * MIB), ("llama", 0)])
def test_an_encoder_in_the_model_s_own_file_is_told_apart_where_ollama_uses_it(architecture: str, encoder: int) -> None:
    tensors = {"blk.0.x": 1000 * MIB, "v.blk.0.x": 250 * MIB, "mm.0.weight": 50 * MIB}
    model = fetched(header=Header(architecture, tensors=tensors), size=1300 * MIB, family=architecture)
    (load,) = loads((), pulled={"small": model}, pull=[SMALL], context=4096).loads
    assert (load.encoder, load.weights) == (encoder, 1300 * MIB - encoder)
    assert ("v.blk.0.x" in load.tensors) == (not encoder)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"unknown": "10.0.0.1 answers 404: manifest unknown"}, "10.0.0.1 answers 404: manifest unknown"),
        ({"parts": ("adapter", "model")}, "it comes with an adapter"),
        ({"parts": ("draft", "model")}, "it drafts its answers"),
        ({"numbers": {"draft_num_predict": 4}}, "it drafts its answers"),
        ({"numbers": {"num_gpu": 20}}, "it comes with num_gpu: 20"),
    ],
)
def test_what_nobody_has_added_up_of_a_fetched_model_is_unknown(said: dict[str, Any], why: str) -> None:
    other = {"name": "other", "model": "org/other"}
    pulled = {"small": fetched(**said), "other": fetched()}
    found = loads((), pulled=pulled, pull=[SMALL, other], context=4096)
    assert found.unknown.startswith(f"what small takes, which it fetches by itself, is not known: {why}")
    assert [load.name for load in found.loads] == ["other"]


def test_no_shorter_context_is_advised_where_one_comes_with_a_model() -> None:
    def written(**said: Any) -> list[str]:
        ways = loads((), pulled={"small": fetched(**said)}, pull=[SMALL], memory=24 * GIB).ways
        return [way.write for way in ways or ()]

    assert written() == ["kv_cache_type: q8_0", "kv_cache_type: q8_0, context: 4096", ""]
    assert written(numbers={"num_ctx": 8192}) == ["kv_cache_type: q8_0", ""]


def test_a_model_of_which_nothing_was_read_is_unknown() -> None:
    found = loads(("other",), context=4096)
    assert found.unknown == "other: nothing is known of it"


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


@pytest.mark.parametrize(
    ("card", "options", "is_flashing"),
    [
        (replace(NVIDIA, capability="5.2"), {}, False),
        (replace(NVIDIA, capability="7.2"), {}, False),
        (replace(NVIDIA, capability="6.1"), {}, True),
        (replace(NVIDIA, capability=""), {}, True),
        (replace(NVIDIA, capability="5.2"), {"flash_attention": "on"}, True),
        (replace(NVIDIA, capability="5.2"), {"vulkan": True}, True),
        (AMD, {}, True),
    ],
)
def test_a_card_without_flash_attention_takes_no_packed_cache_and_more_to_compute(
    card: Card, options: dict[str, Any], is_flashing: bool
) -> None:
    content = lab(("llama",), kv_cache_type="q8_0", **options)
    content["containers"]["amd"]["gpu"] = "any"
    resolved = resolve(spec_of(content), load_catalog(), Known(headers=HEADS, cards={"amd": card}))
    found = knowledge_of("ollama").loads(resolved.services[ADDRESS], SIZES, 8 * GIB)
    assert found is not None
    assert found.loads[0].flash_attention is is_flashing
    problems = card_problems(resolved)
    assert [(problem.path[-1], problem.hint) for problem in problems] == [("kv_cache_type", "Write f16.")] * (
        not is_flashing
    )


@pytest.mark.parametrize(("name", "parallel", "count"), [("hybrid", 2, 1), ("hybrid", 1, 0), ("llama", 2, 0)])
def test_requests_that_ollama_computes_one_by_one_all_the_same_are_a_warning(
    name: str, parallel: int, count: int
) -> None:
    resolved = resolve(spec_of(lab((name,), num_parallel=parallel)), load_catalog(), Known(headers=HEADS))
    hints = [problem.hint for problem in warnings(resolved) if problem.path[-1] == "num_parallel"]
    assert hints == ["Write 1, or serve it by llama_cpp."] * count
