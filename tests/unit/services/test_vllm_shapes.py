"""What vLLM keeps of tokens and requests: against the bytes that its own classes told, and what is not told."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from provisioner.loads.layers import Attention, Recurrent, Shape
from provisioner.loads.terms import Load, Pages, cache_bytes, kept, largest_context, needed_bytes, state_bytes
from provisioner.models.folders import header_of
from provisioner.services.vllm.loads import shape_of_vllm
from tests.unit.loads.vllm_sums import COUNTED, GRANITE, LARGE, LATENT, NEXT, QWEN35, SEEING, TOKENS, Counted

PROCESSORS = 32
"""Tokens of a page on the processor that was asked."""
SHARE = 0.05


def shape(counted: Counted, **keys: Any) -> Shape:
    """The shape of the model, with these keys in its config.json."""
    return shape_of_vllm(header_of(json.dumps({**counted.config, **keys}).encode()), 2, counted.drafted)


def load_of(counted: Counted, pages: Pages) -> Load:
    """The model with a cache of such pages."""
    return Load("m", shape(counted), 1, TOKENS, counted.cached, counted.cached, pages=pages)


@pytest.mark.parametrize("counted", [*LARGE, *COUNTED, SEEING], ids=lambda counted: counted.name)
def test_what_is_reckoned_is_what_the_engine_asks_for_to_the_byte(counted: Counted) -> None:
    pages = replace(counted.pages, tokens=16 if counted.kind == "deepseek_v2" else PROCESSORS)
    load = load_of(counted, pages)
    assert cache_bytes(load) + state_bytes(load) == counted.needed + counted.block


@pytest.mark.parametrize("counted", [*LARGE, *COUNTED, SEEING], ids=lambda counted: counted.name)
def test_the_pages_of_a_card_change_little(counted: Counted) -> None:
    load = load_of(counted, counted.pages)
    reckoned = cache_bytes(load) + state_bytes(load)
    assert reckoned == pytest.approx(counted.needed + counted.block, rel=SHARE)


@pytest.mark.parametrize(
    ("kind", "keys", "left_out"),
    [
        ("deepseek_v3", LATENT, "kv_lora_rank"),
        ("deepseek_v2", LATENT, "qk_rope_head_dim"),
        ("deepseek_v2", LATENT, "num_hidden_layers"),
        ("qwen3_next", NEXT, "linear_conv_kernel_dim"),
        ("qwen3_5_text", QWEN35, "linear_value_head_dim"),
        ("granitemoehybrid", GRANITE, "layer_types"),
        ("granitemoehybrid", GRANITE, "mamba_d_state"),
    ],
)
def test_what_a_config_does_not_tell_is_named_and_never_guessed(kind: str, keys: dict[str, Any], left_out: str) -> None:
    found = shape(Counted("m", "M", kind, keys, 0, 0), **{left_out: None})
    assert found.unread == ("its config.json does not say what each of its layers keeps",)
    assert found.layers == ()


def test_what_no_list_says_is_told_by_the_interval() -> None:
    counted = Counted("m", "M", "qwen3_next", NEXT, 0, 0)
    listed = ["linear_attention", "full_attention"] * 24
    attending = [isinstance(layer, Attention) for layer in shape(counted, layer_types=listed).layers]
    assert attending == [False, True] * 24
    assert sum(isinstance(layer, Attention) for layer in shape(counted).layers) == 12
    assert shape(counted, layer_types=["mamba"] * 3).unread


def test_states_have_the_numbers_that_the_model_names() -> None:
    counted = Counted("m", "M", "qwen3_5_text", QWEN35, 0, 0)
    (wide, *_), (narrow, *_) = shape(counted).layers, shape(counted, mamba_ssm_dtype=None).layers
    assert isinstance(wide, Recurrent)
    assert isinstance(narrow, Recurrent)
    assert (wide.numbers - narrow.numbers) * 4 == 16 * 128 * 128 * 2


def test_kinds_of_nearly_as_many_layers_fill_one_group_each() -> None:
    full, windowed = Attention(8, 8), Attention(8, 8, 64)
    pages = Pages(16, 64)
    of_twelve = kept([full] * 12 + [windowed] * 13, 32, 1024, pages)
    assert of_twelve.cache == 13 * 16 * 32 * (1024 // 16 + (63 + 64 + 15) // 16 + 1 + 1)
    assert kept([], 0, 1024, pages).cache == 0


def test_a_model_of_states_alone_keeps_no_more_of_a_longer_request() -> None:
    pages = Pages(16, 64)
    short, long = (kept([Recurrent(100)] * 4, 0, context, pages) for context in (256, 65_536))
    assert short == long
    assert short.state == 2 * 4 * 400


def test_the_largest_context_is_held_against_such_a_cache() -> None:
    counted = next(one for one in COUNTED if one.kind == "qwen3_next")
    load = replace(load_of(counted, counted.pages), buffers=1)
    largest = largest_context(load, needed_bytes(load))
    assert TOKENS <= largest < TOKENS + 544
