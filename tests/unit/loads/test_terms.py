"""The sum over what a model needs, held against figures that engines have printed."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from provisioner.loads.layers import Attention, Recurrent, Shape, Widths, shape_of
from provisioner.loads.terms import (
    MIB,
    Load,
    added_up,
    buffer_bytes,
    cache_bytes,
    largest_context,
    state_bytes,
    terms_of,
    token_bytes,
    total_of,
)
from provisioner.loads.weighing import weighed
from provisioner.models.header import Header
from tests.unit.loads.models import GEMMA, LLAMA, NINE, QWEN, USABLE


def test_a_hybrid_of_9b_misses_8_gib_by_81_mib() -> None:
    found = {term.name: term.bytes / MIB for term in terms_of(NINE)}
    assert token_bytes(NINE) == 32_768
    assert (found["cache"], found["recurrent state"]) == (1256, 201)
    assert found["compute buffers"] == 493
    added = added_up([("nine", NINE)], USABLE)
    assert (added.total / MIB, added.missing / MIB) == (7441, 81)


@pytest.mark.parametrize(
    ("keys", "values", "bytes_each"),
    [
        ("exl8", "exl8", 17_408),
        ("exl8", "exl4", 13_312),
        ("exl4", "exl4", 9_216),
        ("q8_0", "q8_0", 32_768 * 34 // 64),
        ("q8_0", "q4_0", 32_768 * (34 + 18) // 128),
    ],
)
def test_smaller_types_take_less_for_each_token_and_their_scales_count(keys: str, values: str, bytes_each: int) -> None:
    assert token_bytes(replace(NINE, keys=keys, values=values)) == bytes_each


def test_the_largest_context_fits_and_the_next_one_does_not() -> None:
    largest = largest_context(NINE, USABLE)
    assert 0 < largest < 40_192
    assert largest % 256 == 0
    assert added_up([("nine", replace(NINE, context=largest))], USABLE).missing == 0
    assert added_up([("nine", replace(NINE, context=largest + 256))], USABLE).missing > 0


def test_no_context_is_larger_than_what_was_trained() -> None:
    load = Load("a", shape_of(LLAMA, 100), weights=0, context=4096)
    assert largest_context(load, 2**50) == 8192
    assert largest_context(load, 0) == 0


def test_a_model_whose_layers_all_attend_has_no_state() -> None:
    load = Load("a", shape_of(LLAMA, vocabulary=128_256), weights=MIB, context=8192)
    assert state_bytes(load) == 0
    assert cache_bytes(load) == 32 * 8192 * 2 * 8 * 128 * 2
    assert buffer_bytes(load) == (128_256 + 4096) * 512 * 4
    assert [term.name for term in terms_of(load)] == ["weights", "cache", "compute buffers"]


def test_a_window_keeps_its_own_tokens_and_those_of_a_batch() -> None:
    shape = shape_of(GEMMA, 100)
    windows = [one.window for one in shape.layers if isinstance(one, Attention)]
    assert windows == [512, 512, 512, 512, 512, 0] * 2
    load = Load("a", shape, weights=0, context=32_768)
    each = 2 * 256 * 2
    assert token_bytes(load) == 2 * each
    assert cache_bytes(load) == each * (2 * 32_768 + 10 * 1024)
    assert cache_bytes(replace(load, context=512)) == each * 12 * 512


@pytest.mark.parametrize(
    ("context", "slots", "unified", "ubatch", "whole", "window"),
    [
        (8192, 1, False, 512, 8192, 1024),
        (8192, 4, False, 512, 4 * 2048, 4 * 1024),
        (8192, 4, True, 512, 8192, 2560),
        (2048, 4, False, 512, 4 * 512, 4 * 512),
        (8192, 2, False, 64, 2 * 4096, 2 * 768),
        (40192, 4, False, 512, 4 * 10240, 4 * 1024),
        (4100, 3, False, 512, 3 * 1536, 3 * 1024),
    ],
)
def test_cells_are_those_that_llama_cpp_says(  # noqa: PLR0917  # its own log, figure by figure
    context: int, slots: int, unified: bool, ubatch: int, whole: int, window: int
) -> None:
    load = Load("a", shape_of(GEMMA, 100), 0, context, slots=slots, unified=unified, ubatch=ubatch)
    assert cache_bytes(load) == 2 * 256 * 2 * (2 * whole + 10 * window)


def test_several_engines_share_one_card() -> None:
    other = Load("eye", shape_of(LLAMA), weights=100 * MIB, context=256, encoder=50 * MIB)
    added = added_up([("nine", NINE), ("eye", other)], USABLE)
    names = [term.name for term in added.terms]
    assert names[0] == "nine: weights"
    assert "eye: image encoder" in names
    assert added.total == total_of(NINE) + total_of(other)


def test_a_cache_in_the_host_s_memory_takes_nothing_of_the_card() -> None:
    assert {term.name for term in terms_of(replace(NINE, cache_on_card=False))} == {"weights", "compute buffers"}


def test_recurrent_layers_are_told_by_a_list_by_zeros_and_by_their_interval() -> None:
    listed = shape_of(QWEN | {"qwen35.attention.recurrent_layers": [True] * 31 + [False]})
    assert sum(isinstance(one, Recurrent) for one in listed.layers) == 31
    every_eighth = shape_of(QWEN | {"qwen35.full_attention_interval": 8})
    assert sum(isinstance(one, Recurrent) for one in every_eighth.layers) == 28
    lfm = {
        "general.architecture": "lfm2",
        "lfm2.block_count": 4,
        "lfm2.embedding_length": 1024,
        "lfm2.attention.head_count": 16,
        "lfm2.attention.head_count_kv": [0, 0, 8, 0],
        "lfm2.shortconv.l_cache": 3,
    }
    assert shape_of(lfm).layers == (Recurrent(2048), Recurrent(2048), Attention(512, 512), Recurrent(2048))


def keeping(architecture: str, **values: Any) -> list[tuple[int, int] | int]:
    """Return what each of the layers of a small model keeps: keys and values, or numbers of a state."""
    own = {"block_count": 4, "embedding_length": 1024, "attention.head_count": 16, "attention.head_count_kv": 8}
    own |= {name.replace("__", "."): value for name, value in values.items()}
    keys = {f"{architecture}.{name}": value for name, value in own.items()}
    layers = shape_of({"general.architecture": architecture, **keys}).layers
    return [(one.keys, one.values) if isinstance(one, Attention) else one.numbers for one in layers]


def test_what_no_layer_keeps_is_not_counted() -> None:
    latent = {"attention__head_count_kv": 1, "attention__key_length": 576, "attention__value_length": 512}
    assert keeping("deepseek2", **latent) == [(576, 512)] * 4
    latent |= {"attention__key_length_mla": 256, "attention__value_length_mla": 256}
    assert keeping("deepseek2", **latent) == [(576, 0)] * 4, "values are made of the keys"
    assert keeping("glm4moe", nextn_predict_layers=1) == [(512, 512)] * 3 + [(0, 0)], "the last one only drafts"
    assert keeping("gemma3n", block_count=22)[19:] == [(512, 512), (0, 0), (0, 0)], "they read what others keep"
    state = {"ssm__inner_size": 64, "ssm__state_size": 16, "ssm__group_count": 1, "ssm__conv_kernel": 4}
    kinds = {"attention__head_count_kv": [0, 0, 8, 0], "feed_forward_length": [0, 1856, 0, 1856]}
    assert keeping("nemotron_h_moe", **kinds, **state) == [3 * 96 + 1024, (0, 0), (512, 512), (0, 0)]


def test_weights_of_layers_that_only_draft_are_not_loaded() -> None:
    tensors = {"token_embd.weight": 5 * MIB, "blk.0.ffn_up.weight": 7 * MIB, "blk.1.ffn_up.weight": 3 * MIB}
    header = Header("glm4moe", 2, values={"glm4moe.block_count": 2, "glm4moe.nextn_predict_layers": 1}, tensors=tensors)
    assert weighed(header, 16 * MIB, "")[1] == 12 * MIB
    assert weighed(replace(header, parts=2), 100 * MIB, "")[1] == 97 * MIB
    assert weighed(replace(header, values={}), 16 * MIB, "")[1] == 15 * MIB


def test_what_is_not_known_is_said_and_no_number_stands_for_it() -> None:
    novel = {key.replace("llama", "novel"): one if one != "llama" else "novel" for key, one in LLAMA.items()}
    unknown = shape_of(novel, 100)
    assert unknown.unread == ('architecture "novel" is not known here',)
    load = Load("a", unknown, weights=5000 * MIB, context=40_192, encoder=MIB)
    assert {one.name: one.bytes / MIB for one in terms_of(load)} == {"weights": 5000, "image encoder": 1}
    assert largest_context(load, 2**50) == 0
    assert shape_of({"general.architecture": "llama"}).unread == (
        "it does not say how many layers and heads it has",
        "it does not say how many tokens it knows and how long its vectors are",
    )
    stateless = shape_of({key: one for key, one in QWEN.items() if "ssm" not in key}, 100)
    assert stateless.unread == ("it does not say how large the state of its recurrent layers is",)
    assert shape_of(QWEN, 100).unread == shape_of(LLAMA, 100).unread == ()


RARE = (
    "full_attention_interval",
    "attention.recurrent_layers",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
)


def test_damaged_numbers_give_a_sum_or_a_word_never_an_error() -> None:
    chance = random.Random(7)  # noqa: S311  # the same damage at each run
    odd: list[Any] = [-1, 0, 1, 3, 2**31, 2**63, True, [], [1], [-5] * 32, [0] * 32, [2**40] * 32, "text"]
    for _ in range(2000):
        values = dict(chance.choice([QWEN, LLAMA, GEMMA]))
        architecture = values["general.architecture"]
        names = {f"{architecture}.{name}" for name in RARE} | set(values) - {"general.architecture"}
        for name in chance.sample(sorted(names), chance.randint(1, 4)):
            values[name] = chance.choice(odd)
        shape = shape_of(values, chance.choice([0, 100]))
        load = Load("a", shape, 5000 * MIB, 8192, slots=2, unified=False)
        assert all(term.bytes > 0 for term in terms_of(load))
        assert largest_context(load, 2**33) >= 0


def computing(width: int, widths: Widths, *layers: Attention | Recurrent) -> Load:
    """A model of which 512 tokens are computed at once, with 4,096 in its cache."""
    shape = Shape("any", layers or (Attention(1, 1),), width, 1000, widths=widths)
    return Load("one", shape, 0, 4096, outputs=1)


TOLD = [
    ("Llama 3.2 1B", 64.01, computing(2048, Widths(8192, 2048, 32))),
    ("Qwen3 1.7B", 52.01, computing(2048, Widths(6144, 2048, 16))),
    ("all heads have keys of their own", 92.51, computing(4096, Widths(11_008, 4096, 32))),
    ("Qwen3 30B-A3B", 88.01, computing(2048, Widths(6144, 4096, 32, spread=16_384))),
    ("wide experts", 34.01, computing(1024, Widths(4096, 1024, 16, spread=2048))),
    ("Gemma 3 1B", 52.02, computing(1152, Widths(6912, 1024, 4), Attention(1, 1), Attention(1, 1, 512))),
    ("Gemma 3 4B", 79.52, computing(2560, Widths(10_240, 2048, 8), Attention(1, 1), Attention(1, 1, 1024))),
    ("Qwen3.5 2B", 48.16, computing(2048, Widths(6144, 4096, 8), Attention(1, 1), Recurrent(1))),
    ("Qwen3-VL 2B", 64.02, computing(2048, Widths(6144, 2048, 16, beside=6144))),
]
"""Compute buffers in MiB that llama-server 0.5.0 told of a device of its own (RPC) when it started with such models."""


@pytest.mark.parametrize(("told", "load"), [row[1:] for row in TOLD], ids=[row[0] for row in TOLD])
def test_compute_buffers_are_those_that_the_engine_tells(told: float, load: Load) -> None:
    assert buffer_bytes(load) / MIB == pytest.approx(told, rel=0.005)


@pytest.mark.parametrize(
    ("told", "load"),
    [
        (36.01, computing(2048, Widths(4096, 4096, 64))),
        (12.01, computing(1024, Widths(1024, 1024, 16))),
        (28.01, computing(1024, Widths(3072, 4096, 32))),
    ],
)
def test_of_a_narrow_inside_too_much_is_reckoned_and_never_too_little(told: float, load: Load) -> None:
    assert told <= buffer_bytes(load) / MIB <= 1.4 * told


@pytest.mark.parametrize(
    ("told", "load"),
    [(546.01, computing(2048, Widths(4096, 4096, 64))), (288.01, computing(1024, Widths(3072, 4096, 32)))],
)
def test_without_flash_attention_the_scores_of_all_heads_count(told: float, load: Load) -> None:
    without = buffer_bytes(replace(load, flash_attention=False)) / MIB
    assert told <= without <= 1.05 * told
    assert without > 5 * buffer_bytes(load) / MIB


def test_logits_of_all_tokens_count_where_the_engine_makes_them() -> None:
    load = computing(2048, Widths(6144, 2048, 16))
    wordy = replace(load, shape=replace(load.shape, vocabulary=151_936))
    assert buffer_bytes(wordy) == buffer_bytes(load)
    assert buffer_bytes(replace(wordy, outputs=0)) == (151_936 + 2048) * 512 * 4
    assert buffer_bytes(replace(wordy, outputs=400)) == 151_936 * 400 * 4


def test_half_the_tokens_at_once_take_half_of_the_buffers() -> None:
    load = computing(2048, Widths(6144, 2048, 16))
    assert buffer_bytes(replace(load, ubatch=256)) * 2 == buffer_bytes(load)


@pytest.mark.parametrize(
    ("said", "widths"),
    [
        ({"feed_forward_length": 8192}, Widths(8192, 2048, 32)),
        ({"feed_forward_length": [100, 8192]}, Widths(8192, 2048, 32)),
        ({"feed_forward_length": 8192, "attention.key_length": 128}, Widths(8192, 4096, 32)),
        (
            {
                "feed_forward_length": 6144,
                "expert_count": 128,
                "expert_used_count": 8,
                "expert_feed_forward_length": 768,
            },
            Widths(6144, 2048, 32, spread=16_384),
        ),
        ({"feed_forward_length": 512, "expert_count": 8, "expert_used_count": 2}, Widths(1024, 2048, 32, spread=4096)),
        ({"feed_forward_length": 8192, "n_deepstack_layers": 3}, Widths(8192, 2048, 32, beside=6144)),
        ({}, None),
        ({"feed_forward_length": 8192, "attention.head_count": "many"}, None),
        ({"feed_forward_length": -8192}, None),
        ({"feed_forward_length": [-1, -2]}, None),
        ({"feed_forward_length": 8192, "attention.head_count": [-4]}, None),
    ],
)
def test_the_widths_are_those_that_the_file_tells(said: dict[str, Any], widths: Widths | None) -> None:
    own = {"block_count": 2, "embedding_length": 2048, "attention.head_count": 32} | said
    values = {"general.architecture": "llama", **{f"llama.{name}": value for name, value in own.items()}}
    assert shape_of(values, 1000).widths == widths


@pytest.mark.parametrize(("keys", "values", "packed"), [("q8_0", "q4_0", 2), ("q8_0", "f16", 1), ("f16", "f16", 0)])
def test_cudas_flash_attention_unpacks_a_layers_keys_and_values(keys: str, values: str, packed: int) -> None:
    # 131,072 tokens of 8 heads of 128: llama.cpp 0.5.0 reserves 656 MiB by CUDA's rule where it reserves 172 without
    shape = shape_of(LLAMA, vocabulary=128_256)
    load = Load("one", shape, 0, 131_072, keys=keys, values=values, outputs=1)
    more = buffer_bytes(replace(load, unpacks=True)) - buffer_bytes(load)
    layer = shape.layers[0]
    assert isinstance(layer, Attention)
    assert more == packed * layer.keys * 131_072 * 2
    assert buffer_bytes(replace(load, unpacks=True, flash_attention=False)) == buffer_bytes(
        replace(load, flash_attention=False)
    )


def test_what_attention_unpacks_is_gone_when_the_feed_forward_part_is_computed() -> None:
    shape = computing(2048, Widths(65_536, 2048, 16), Attention(1024, 1024))
    load = replace(shape, context=4096, keys="q8_0", values="q8_0", unpacks=True)
    narrow = replace(load, shape=replace(load.shape, widths=Widths(512, 2048, 16)))
    assert buffer_bytes(load) == buffer_bytes(replace(load, unpacks=False))
    assert buffer_bytes(narrow) - buffer_bytes(replace(narrow, unpacks=False)) == 2 * 1024 * 4096 * 2


def test_a_recurrent_layer_may_compute_more_than_a_feed_forward_part() -> None:
    # a small Granite 4 of llama.cpp's own test: 8.53 MiB at 512 tokens, of which 0.5 say who may see what
    keys = {
        "block_count": 2,
        "embedding_length": 256,
        "feed_forward_length": 384,
        "vocab_size": 128,
        "attention.head_count": [2, 0],
        "attention.head_count_kv": [2, 0],
        "attention.key_length": 128,
        "ssm.inner_size": 512,
        "ssm.state_size": 128,
        "ssm.group_count": 2,
        "ssm.conv_kernel": 4,
    }
    values = {"general.architecture": "granitehybrid", **{f"granitehybrid.{key}": value for key, value in keys.items()}}
    load = Load("one", shape_of(values), 0, 512, outputs=1)
    assert buffer_bytes(load) == pytest.approx(8_939_776, rel=0.1)


@pytest.mark.parametrize(("layers", "has_window"), [(64, True), (30, False)], ids=["32B", "1.2B"])
def test_exaone_4_has_windows_in_its_large_model_alone(layers: int, has_window: bool) -> None:
    keys = {"block_count": layers, "embedding_length": 256, "vocab_size": 128, "attention.head_count": 2}
    keys |= {"attention.head_count_kv": 2, "attention.sliding_window": 4096}
    shape = shape_of({"general.architecture": "exaone4", **{f"exaone4.{key}": value for key, value in keys.items()}})
    assert any(isinstance(layer, Attention) and layer.window for layer in shape.layers) == has_window
